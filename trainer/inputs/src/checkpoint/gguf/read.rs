//! Reads a GGUF file, as a single-file model.

use std::path::Path;

use itertools::Itertools;
use precast_kernels::Gamma;
use precast_plan::Family;
use tokenizers::Tokenizer;

use super::container::{self, Header, Named};
use super::{Gguf, config, delta_rule, experts, names, rope, tokenizer};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::file::WeightFile;
use crate::checkpoint::form::Form;
use crate::checkpoint::heads::Interleaved;
use crate::checkpoint::single_file::SingleFile;
use crate::checkpoint::store::{Tensor, Tensors};
use crate::checkpoint::tiles::Tiled;

/// Bytes that most headers without a vocabulary fit into.
const FIRST_HEAD_BYTES: u64 = 1 << 20;

impl Gguf {
    /// Opens a file, reads its header and finds every tensor's place. No weights are read. The file must not be
    /// written to for as long as the value lives.
    ///
    /// # Errors
    /// [`Fault`] for a file that cannot be read, is damaged, is one of several parts, or holds another
    /// architecture or tensors that its family does not have.
    pub(in crate::checkpoint) fn read(path: &Path) -> Result<Self, Fault> {
        let file = WeightFile::open(path)?;
        let (head, Header { metadata, tensors }) = read_head(&file)?;
        let family = config::family(&metadata)?;
        let (factors, named): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|tensor| rope::is_factors(family, &tensor.name));
        // Where they are not right, the configuration says so.
        let heads = config::head_counts(family, &metadata).ok().filter(|_| family.gguf_interleaves_heads);
        let delta_heads = delta_rule::heads(family, &metadata).ok().flatten();
        let depth = delta_rule::depth(family, &metadata).ok().filter(|_| family.delta_rule);
        let named = named.into_iter().filter(|named| !depth.is_some_and(|depth| is_behind(&named.name, depth)));
        let tensors = Tensors {
            files: vec![(path.to_owned(), file)],
            list: named.map(|named| place(family, named)).flatten_ok().collect::<Result<_, _>>()?,
            form: Form {
                interleaved: heads.map(|(heads, kv_heads)| Interleaved { family, heads, kv_heads }),
                tiled: delta_heads.map(|heads| Tiled { family, heads }),
                adds_one: family.gamma == Gamma::OnePlus,
            },
            wide: true,
            checksum: None,
        };
        let rope_factors = factors.into_iter().next();
        Ok(Self { head, metadata, family, tensors, rope_factors })
    }
}

impl SingleFile for Gguf {
    fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    fn tensors_mut(&mut self) -> &mut Tensors {
        &mut self.tensors
    }

    /// The model's shape as the value of a Hugging Face `config.json`.
    ///
    /// Keys: `architectures`, `model_type`, `hidden_size`, `intermediate_size`, `num_hidden_layers`,
    /// `num_attention_heads`, `num_key_value_heads`, `head_dim`, `vocab_size` (rows of the embedding),
    /// `rope_theta`, `rms_norm_eps`, `max_position_embeddings`, `tie_word_embeddings` (there is no output
    /// projection), the activation, `torch_dtype` (`float32`: weights are dequantized), `bos_token_id` and
    /// `eos_token_id` where the file has them, for llama and qwen3 `attention_bias`, and `rope_scaling` of type
    /// `llama3` where the file has the tensor `rope_freqs.weight` that scaling gives, or `linear` where Gemma's keys
    /// say so; Gemma's window, rotary base there and scale of scores; and of Qwen3.5 the heads of the gated delta rule
    /// (`linear_*`), which layers attend, and in `rope_parameters` the share of a head that is rotated.
    ///
    /// # Errors
    /// [`Fault`] for keys that are missing or of the wrong type, and for what this program does not compute:
    /// rotary embeddings that are scaled otherwise or, in other families, partial, other families' windows, values of
    /// another size than keys.
    fn config(&self) -> Result<serde_json::Value, Fault> {
        config::config(self)
    }

    /// The tokenizer, from the file's own metadata: `tokenizer.ggml.model` `gpt2` (byte-level BPE) or `llama`
    /// (SentencePiece BPE with byte fallback), in the form that the model's own `tokenizer.json` has.
    ///
    /// Control tokens become special added tokens, user-defined ones plain added tokens. Padding of the vocabulary
    /// (tokens marked unused) is left out. The begin token is added to encodings where
    /// `tokenizer.ggml.add_bos_token` says so, or says nothing and the model is `llama` or splits text as Llama 3 or
    /// Tekken; and only if the caller asks for special tokens.
    ///
    /// # Errors
    /// [`Fault`] for keys that are missing, lists that do not go together, and tokenizers that are not known.
    fn tokenizer(&self) -> Result<Tokenizer, Fault> {
        tokenizer::tokenizer(&self.metadata, &self.head)
    }

    fn sentencepiece(&self) -> Result<Option<Vec<u8>>, Fault> {
        tokenizer::sentencepiece(&self.metadata, &self.head)
    }

    /// True if the file has a tokenizer: converters may leave it out.
    fn has_tokenizer(&self) -> bool {
        tokenizer::is_there(&self.metadata)
    }

    fn token_ids(&self) -> Result<[Option<u64>; 2], Fault> {
        let id = |key| self.metadata.integer(key);
        Ok([id(tokenizer::BOS_KEY)?, id(tokenizer::EOS_KEY)?])
    }

    fn padding_id(&self) -> Result<Option<u64>, Fault> {
        self.metadata.integer(tokenizer::PADDING_KEY)
    }

    fn chat_template(&self) -> Result<Option<String>, Fault> {
        self.metadata.string(tokenizer::TEMPLATE_KEY)
    }

    fn tool_use_template(&self) -> Result<Option<String>, Fault> {
        self.metadata.string(&format!("{}.tool_use", tokenizer::TEMPLATE_KEY))
    }
}

/// As many bytes of a file as its header takes, or a few more, and the header.
fn read_head(file: &WeightFile) -> Result<(Vec<u8>, Header), Fault> {
    let mut most = FIRST_HEAD_BYTES;
    loop {
        let head = file.head(most)?;
        match Header::read(&head, file.bytes) {
            Err(Fault::Truncated { file_bytes, .. }) if file_bytes < file.bytes => {}
            read => return Ok((head, read?)),
        }
        if most >= container::MOST_HEADER_BYTES {
            return Err(Fault::damaged(format_args!("metadata and table of tensors take more than {most} bytes")));
        }
        most *= 16;
    }
}

/// True for a tensor of a layer behind so many.
fn is_behind(name: &str, layers: u64) -> bool {
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse().ok());
    layer.is_some_and(|layer: u64| layer >= layers)
}

/// Finds a tensor's Hugging Face name, or those of each expert's part, and brings the kernel of a convolution and the
/// row of a shared expert's gate into their shapes there.
fn place(family: &Family, Named { name, offset, mut tensor }: Named) -> Result<Vec<(String, Tensor)>, Fault> {
    if let Some(each) = experts::each(family, &name, &tensor) {
        return Ok(each);
    }
    if let Some(name) = names::hugging_face(family, &name) {
        if name.ends_with(".conv1d.weight") && tensor.shape.len() == 2 {
            tensor.shape.insert(1, 1);
        }
        if name.ends_with(".shared_expert_gate.weight") && tensor.shape.len() == 1 {
            tensor.shape.insert(0, 1);
        }
        return Ok(vec![(name, tensor)]);
    }
    let reason = match &name[..] {
        rope::FACTORS => "it scales the rotary embedding, which is supported in llama only",
        _ => "supported are models without adapters",
    };
    Err(Fault::Wrong(format!(
        "tensor {name} at byte {offset} has no place in a {} model that this program knows: {reason}",
        family.gguf
    )))
}
