//! GGUF files: llama.cpp's single-file models, read as if they were Hugging Face directories.
//!
//! [`Gguf`] reads the file's header; weights are dequantised one tensor at a time. The format is
//! described in ggml's `docs/gguf.md`. A file is not trusted: whatever is wrong with it is a [`GgufError`], and
//! nothing is allocated on the word of a length that the file's size does not bear out.

mod blocks;
mod config;
mod container;
mod error;
mod keys;
mod metadata;
mod names;
mod rope;
#[cfg(test)]
mod tests;
mod tokenizer;
mod write;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use precast_kernels::Block;
use precast_plan::{Family, Formats};
use tokenizers::Tokenizer;

use super::Scratch;
use super::file::{Access, Raw, WeightFile};
use super::heads::deinterleave;
use blocks::BlockType;
use container::{Header, Tensor, Values};
pub use error::{Fault, GgufError};
use metadata::Metadata;
use names::Heads;
pub(super) use tokenizer::splits_as_qwen2;
pub use write::FILE;
pub(super) use write::{Tensor as WrittenTensor, header, tensors};

/// Bytes that most headers without a vocabulary fit into.
const FIRST_HEAD_BYTES: u64 = 1 << 20;

/// A GGUF file of a model of a known family, version 2 or 3, little-endian: header read, weights on disk.
pub struct Gguf {
    path: PathBuf,
    file: WeightFile,
    /// The first bytes of the file: metadata and more.
    head: Vec<u8>,
    metadata: Metadata,
    family: &'static Family,
    /// By Hugging Face name.
    tensors: BTreeMap<String, Weight>,
    /// What rotary frequencies are divided by, if the file has it.
    rope_factors: Option<Tensor>,
}

/// A tensor and whose heads its rows are.
struct Weight {
    tensor: Tensor,
    heads: Heads,
}

impl Gguf {
    /// Whether the file starts with the GGUF magic. False too for one that cannot be read.
    pub fn is_gguf(path: &Path) -> bool {
        WeightFile::open(path).and_then(|file| file.head(4)).is_ok_and(|head| head == container::MAGIC)
    }

    /// Opens a file, reads its header and finds every tensor's place. No weights are read. The file must not be
    /// written to for as long as the value lives.
    ///
    /// Tensors of a type that is not supported are listed; [`Gguf::read`] refuses them.
    ///
    /// # Errors
    /// [`GgufError`] for a file that cannot be read, is damaged, is one of several parts, or holds another
    /// architecture or tensors that its family does not have.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let at_path = |fault| GgufError { path: path.to_owned(), fault };
        let file = WeightFile::open(path).map_err(|error| at_path(Fault::Io(error)))?;
        let (head, Header { metadata, tensors }) = read_head(&file).map_err(at_path)?;
        let family = config::family(&metadata).map_err(at_path)?;
        let (factors, tensors): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|tensor| rope::is_factors(family, &tensor.name));
        let tensors = tensors.into_iter().map(|tensor| place(family, tensor));
        let tensors = tensors.collect::<Result<_, _>>().map_err(at_path)?;
        let rope_factors = factors.into_iter().next();
        Ok(Self { path: path.to_owned(), file, head, metadata, family, tensors, rope_factors })
    }

    /// The model's shape as the value of a Hugging Face `config.json`.
    ///
    /// Keys: `architectures`, `model_type`, `hidden_size`, `intermediate_size`, `num_hidden_layers`,
    /// `num_attention_heads`, `num_key_value_heads`, `head_dim`, `vocab_size` (rows of the embedding),
    /// `rope_theta`, `rms_norm_eps`, `max_position_embeddings`, `tie_word_embeddings` (there is no output
    /// projection), `hidden_act`, `torch_dtype` (`float32`: weights are dequantised), `bos_token_id` and
    /// `eos_token_id` where the file has them, for llama and qwen3 `attention_bias`, and `rope_scaling` of type `llama3`
    /// where the file has the tensor `rope_freqs.weight` that scaling gives.
    ///
    /// # Errors
    /// [`GgufError`] for keys that are missing or of the wrong type, and for what this program does not compute:
    /// rotary embeddings that are scaled otherwise or partial, sliding windows, values of another size than keys.
    pub fn config(&self) -> Result<serde_json::Value, GgufError> {
        config::config(self).map_err(|fault| self.error(fault))
    }

    /// The tokenizer, from the file's own metadata: `tokenizer.ggml.model` `gpt2` (byte-level BPE) or `llama`
    /// (SentencePiece BPE with byte fallback), in the form that the model's own `tokenizer.json` has.
    ///
    /// Control tokens become special added tokens, user-defined ones plain added tokens. Padding of the vocabulary
    /// (tokens marked unused) is left out. The begin token is added to encodings where
    /// `tokenizer.ggml.add_bos_token` says so, or says nothing and the model is `llama` or splits text as Llama 3 does;
    /// and only if the caller asks for special tokens.
    ///
    /// # Errors
    /// [`GgufError`] for keys that are missing, lists that do not go together, and tokenizers that are not known.
    pub fn tokenizer(&self) -> Result<Tokenizer, GgufError> {
        tokenizer::tokenizer(&self.metadata, &self.head).map_err(|fault| self.error(fault))
    }

    /// The tokenizer as a `tokenizer.model` has it, where it is one of SentencePiece: with the scores of its pieces, which no
    /// `tokenizer.json` holds and llama.cpp reads text by.
    ///
    /// # Errors
    /// [`GgufError`] as [`Gguf::tokenizer`].
    pub(super) fn sentencepiece(&self) -> Result<Option<Vec<u8>>, GgufError> {
        tokenizer::sentencepiece(&self.metadata, &self.head).map_err(|fault| self.error(fault))
    }

    /// Whether the file has a tokenizer: converters may leave it out.
    pub(super) fn has_tokenizer(&self) -> bool {
        tokenizer::is_there(&self.metadata)
    }

    /// What belongs beside the tokenizer, as the value of a `tokenizer_config.json`: its class, the begin and end
    /// tokens and the chat template, where the file has them.
    ///
    /// # Errors
    /// [`GgufError`] as [`Gguf::tokenizer`].
    pub fn tokenizer_config(&self) -> Result<serde_json::Value, GgufError> {
        let tokenizer = self.tokenizer()?;
        self.config_beside(|id| tokenizer.id_to_token(id))
    }

    /// The same, of a tokenizer that has been read.
    pub(super) fn config_beside(&self, token: impl Fn(u32) -> Option<String>) -> Result<serde_json::Value, GgufError> {
        let mut config = serde_json::json!({ "tokenizer_class": "PreTrainedTokenizerFast" });
        for (name, key) in [("bos_token", "bos_token_id"), ("eos_token", "eos_token_id")] {
            let id = self.metadata.integer(&format!("tokenizer.ggml.{key}")).map_err(|fault| self.error(fault))?;
            let id = id.and_then(|id| u32::try_from(id).ok());
            if let Some(token) = id.and_then(&token) {
                config[name] = token.into();
            }
        }
        let template = self.metadata.string("tokenizer.chat_template").map_err(|fault| self.error(fault))?;
        if let Some(template) = template {
            config["chat_template"] = template.into();
        }
        Ok(config)
    }

    /// Hugging Face names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    /// What ggml calls the format of each tensor.
    pub(super) fn formats(&self) -> impl Iterator<Item = String> {
        self.tensors.values().map(|weight| match &weight.tensor.values {
            Values::Blocks(kind, _) => kind.name().to_owned(),
            Values::Unsupported(code) => blocks::type_name(*code),
        })
    }

    /// The block format of each tensor that is in blocks, by Hugging Face name.
    pub fn blocks(&self) -> Formats {
        let in_blocks = self.tensors.iter().filter_map(|(name, weight)| match &weight.tensor.values {
            Values::Blocks(kind, _) => Some((name.clone(), kind.block()?)),
            Values::Unsupported(_) => None,
        });
        in_blocks.collect()
    }

    /// Shape of a tensor by its Hugging Face name, rows first; `None` if there is no such tensor. Its product is at
    /// most eight times the file's size in bytes, whatever the file says.
    pub fn shape(&self, name: &str) -> Option<Vec<u64>> {
        self.tensors.get(name).map(|weight| weight.tensor.shape.clone())
    }

    /// Dequantises a tensor, by its Hugging Face name, into `f32` on all threads. `out` has as many elements as the
    /// tensor. The values are those of ggml's reference, bit for bit; rows of query and key heads are in Hugging
    /// Face's order.
    ///
    /// # Errors
    /// [`GgufError`] if there is no such tensor, it is of an unsupported type, `out` is of another size, or its
    /// rows do not divide into heads.
    pub fn read(&self, name: &str, out: &mut [f32]) -> Result<(), GgufError> {
        let mut scratch = Scratch::new();
        let elements = self.find(name).map_err(|fault| self.error(fault))?.0.tensor.elements;
        if out.len() != elements {
            let fault = Fault::Length { tensor: name.to_owned(), elements, buffer: out.len() };
            return Err(self.error(fault));
        }
        self.read_values(name, 0..elements as u64, &mut scratch)?;
        out.copy_from_slice(&scratch.values);
        Ok(())
    }

    /// How many elements of a tensor have to be read together: those of a head whose rows are to be put in order, or of a
    /// block.
    pub(super) fn unit(&self, name: &str) -> Result<u64, GgufError> {
        let unit = || -> Result<u64, Fault> {
            let (weight, kind, _) = self.find(name)?;
            let heads = self.interleaved(weight)?;
            Ok(heads.map_or(kind.len() as u64, |heads| (weight.tensor.elements / heads) as u64))
        };
        unit().map_err(|fault| self.error(fault))
    }

    /// Elements of a tensor, whole units of them, as `f32` in `scratch`.
    pub(super) fn read_values(&self, name: &str, elements: Range<u64>, scratch: &mut Scratch) -> Result<(), GgufError> {
        let mut read = || -> Result<(), Fault> {
            let (weight, kind, start) = self.find(name)?;
            let head_count = self.interleaved(weight)?;
            let bytes = self.file.part(kind.range(start, &elements), &mut scratch.raw).map_err(Fault::Io)?;
            scratch.values.resize((elements.end - elements.start) as usize, 0.0);
            kind.dequantize(bytes, &mut scratch.values);
            if let Some(head_count) = head_count {
                let head_len = weight.tensor.elements / head_count;
                deinterleave(
                    &mut scratch.values,
                    (elements.end - elements.start) as usize / head_len,
                    weight.tensor.shape[0] as usize / head_count,
                );
            }
            Ok(())
        };
        read().map_err(|fault| self.error(fault))
    }

    /// Blocks of a tensor, by its Hugging Face name, as the file holds them, of whole units of elements; in `scratch` where
    /// rows of query and key heads have to be put in Hugging Face's order.
    ///
    /// # Errors
    /// [`GgufError`] if there is no such tensor or its rows do not divide into heads.
    ///
    /// # Panics
    /// If [`Gguf::blocks`] says another format.
    pub(super) fn read_blocks<'a>(
        &'a self,
        name: &str,
        elements: Range<u64>,
        block: Block,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], GgufError> {
        let (weight, kind, start) = self.find(name).map_err(|fault| self.error(fault))?;
        assert_eq!(kind.block(), Some(block), "the format of {name}");
        let head_count = self.interleaved(weight).map_err(|fault| self.error(fault))?;
        let bytes = self.file.part(kind.range(start, &elements), &mut scratch.raw);
        let bytes = bytes.map_err(|error| self.error(Fault::Io(error)))?;
        let Some(head_count) = head_count else { return Ok(bytes) };
        scratch.blocks.resize(bytes.len(), 0);
        scratch.blocks.copy_from_slice(bytes);
        let head_len = (weight.tensor.elements / head_count) as u64;
        let heads = (elements.end - elements.start) / head_len;
        deinterleave(&mut scratch.blocks, heads as usize, weight.tensor.shape[0] as usize / head_count);
        Ok(&scratch.blocks)
    }

    /// A tensor by its Hugging Face name, its type and where its values start.
    fn find(&self, name: &str) -> Result<(&Weight, BlockType, u64), Fault> {
        let missing = || Fault::MissingTensor { tensor: name.to_owned() };
        let weight = self.tensors.get(name).ok_or_else(missing)?;
        let (kind, bytes) = weight.tensor.blocks()?;
        Ok((weight, kind, bytes.start))
    }

    /// How many heads the rows of a tensor are of, where the file has their halves interleaved.
    fn interleaved(&self, Weight { tensor, heads }: &Weight) -> Result<Option<usize>, Fault> {
        let interleaved = self.family.gguf_interleaves_heads && *heads != Heads::None;
        interleaved.then(|| self.divide(tensor, *heads)).transpose()
    }

    /// How many heads a tensor's rows are of; each has an even number of rows.
    fn divide(&self, tensor: &Tensor, heads: Heads) -> Result<usize, Fault> {
        let count = config::head_count(self.family, &self.metadata, heads)?;
        let rows = tensor.shape[0];
        if rows.is_multiple_of(count) && (rows / count).is_multiple_of(2) {
            return Ok(count as usize);
        }
        let (tensor, offset, shape) =
            (tensor.name.clone(), tensor.offset, tensor.shape.iter().rev().copied().collect());
        Err(Fault::Shape { tensor, offset, shape, reason: format!("its {rows} rows are not those of {count} heads") })
    }

    fn error(&self, fault: Fault) -> GgufError {
        GgufError { path: self.path.clone(), fault }
    }
}

/// As many bytes of a file as its header takes, or a few more, and the header.
fn read_head(file: &WeightFile) -> Result<(Vec<u8>, Header), Fault> {
    let mut most = FIRST_HEAD_BYTES;
    loop {
        let head = file.head(most)?;
        match Header::read(&head, file.bytes()) {
            Err(Fault::LongHeader { .. }) if most < container::MOST_HEADER_BYTES as u64 => most *= 16,
            read => return Ok((head, read?)),
        }
    }
}

/// Finds a tensor's Hugging Face name.
fn place(family: &Family, tensor: Tensor) -> Result<(String, Weight), Fault> {
    if let Some((name, heads)) = names::hugging_face(family, &tensor.name) {
        return Ok((name, Weight { tensor, heads }));
    }
    let reason = match &tensor.name[..] {
        rope::FACTORS => "it scales the rotary embedding, which is supported in llama only",
        _ => "supported are dense models without adapters",
    };
    let Tensor { name, offset, .. } = tensor;
    Err(Fault::UnknownTensor { tensor: name, offset, architecture: family.gguf, reason })
}
