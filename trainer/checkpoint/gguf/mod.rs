//! GGUF files: llama.cpp's single-file models, read as if they were Hugging Face directories.
//!
//! [`Gguf`] maps the file and reads its header; weights are dequantised one tensor at a time. The format is
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
use std::io::Read;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use precast_fatbins::input;
use precast_kernels::Block;
use precast_plan::{Family, Formats};
use tokenizers::Tokenizer;

use super::Scratch;
use super::heads::deinterleave;
use blocks::BlockType;
use container::{Header, Tensor, Values};
pub use error::{Fault, GgufError};
use metadata::Metadata;
use names::Heads;
pub(super) use tokenizer::splits_as_qwen2;
pub use write::{FILE, write_model};

/// A GGUF file of a model of a known family, version 2 or 3, little-endian: header read, weights on disk.
pub struct Gguf {
    path: PathBuf,
    file: Mmap,
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
        let mut magic = [0; 4];
        input::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == container::MAGIC
    }

    /// Maps a file, reads its header and finds every tensor's place. No weights are read. The file must not be
    /// written to for as long as the value lives.
    ///
    /// Tensors of a type that is not supported are listed; [`Gguf::read`] refuses them.
    ///
    /// # Errors
    /// [`GgufError`] for a file that cannot be read, is damaged, is one of several parts, or holds another
    /// architecture or tensors that its family does not have.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let at_path = |fault| GgufError { path: path.to_owned(), fault };
        let file = input::open(path).map_err(|error| at_path(Fault::Io(error)))?;
        // SAFETY: this value never writes to the map and hands out no reference into it. What is left is another
        // process that writes to the file meanwhile; the documentation forbids it, and nothing can prevent it.
        let file = unsafe { Mmap::map(&file) }.map_err(|error| at_path(Fault::Io(error)))?;
        let Header { metadata, tensors } = Header::read(&file).map_err(at_path)?;
        let family = config::family(&metadata).map_err(at_path)?;
        let (factors, tensors): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|tensor| rope::is_factors(family, &tensor.name));
        let tensors = tensors.into_iter().map(|tensor| place(family, tensor));
        let tensors = tensors.collect::<Result<_, _>>().map_err(at_path)?;
        let rope_factors = factors.into_iter().next();
        Ok(Self { path: path.to_owned(), file, metadata, family, tensors, rope_factors })
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
        tokenizer::tokenizer(&self.metadata, &self.file).map_err(|fault| self.error(fault))
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
        let mut config = serde_json::json!({ "tokenizer_class": "PreTrainedTokenizerFast" });
        for (name, key) in [("bos_token", "bos_token_id"), ("eos_token", "eos_token_id")] {
            let id = self.metadata.integer(&format!("tokenizer.ggml.{key}")).map_err(|fault| self.error(fault))?;
            let id = id.and_then(|id| u32::try_from(id).ok());
            if let Some(token) = id.and_then(|id| tokenizer.id_to_token(id)) {
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
        self.read_tensor(name, out).map_err(|fault| self.error(fault))
    }

    /// The blocks of a tensor, by its Hugging Face name, as the file holds them; in `scratch` where rows of query and key
    /// heads have to be put in Hugging Face's order.
    ///
    /// # Errors
    /// [`GgufError`] if there is no such tensor or its rows do not divide into heads.
    ///
    /// # Panics
    /// If [`Gguf::blocks`] says another format.
    pub(super) fn read_blocks<'a>(
        &'a self,
        name: &str,
        block: Block,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], GgufError> {
        let (weight, kind, bytes) = self.find(name).map_err(|fault| self.error(fault))?;
        assert_eq!(kind.block(), Some(block), "the format of {name}");
        let Some(head_count) = self.interleaved(weight).map_err(|fault| self.error(fault))? else { return Ok(bytes) };
        let out = scratch.blocks(bytes.len());
        out.copy_from_slice(bytes);
        deinterleave(out, head_count, weight.tensor.shape[0] as usize / head_count);
        Ok(out)
    }

    /// A tensor by its Hugging Face name, its type and its bytes.
    fn find(&self, name: &str) -> Result<(&Weight, BlockType, &[u8]), Fault> {
        let missing = || Fault::MissingTensor { tensor: name.to_owned() };
        let weight = self.tensors.get(name).ok_or_else(missing)?;
        let (kind, bytes) = weight.tensor.blocks()?;
        Ok((weight, kind, &self.file[bytes]))
    }

    /// How many heads the rows of a tensor are of, where the file has their halves interleaved.
    fn interleaved(&self, Weight { tensor, heads }: &Weight) -> Result<Option<usize>, Fault> {
        let interleaved = self.family.gguf_interleaves_heads && *heads != Heads::None;
        interleaved.then(|| self.divide(tensor, *heads)).transpose()
    }

    fn read_tensor(&self, name: &str, out: &mut [f32]) -> Result<(), Fault> {
        let (weight, kind, bytes) = self.find(name)?;
        let tensor = &weight.tensor;
        if out.len() != tensor.elements {
            let (elements, buffer) = (tensor.elements, out.len());
            return Err(Fault::Length { tensor: name.to_owned(), elements, buffer });
        }
        let head_count = self.interleaved(weight)?;
        kind.dequantize(bytes, out);
        if let Some(head_count) = head_count {
            deinterleave(out, head_count, tensor.shape[0] as usize / head_count);
        }
        Ok(())
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
