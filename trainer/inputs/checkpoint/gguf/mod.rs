//! GGUF files: llama.cpp's single-file models, read as if they were Hugging Face directories.
//!
//! [`Gguf`] reads the file's header; weights are dequantized one tensor at a time. The format is
//! described in ggml's `docs/gguf.md`. A file is not trusted: whatever is wrong with it is a [`FileError`], and
//! nothing is allocated on the word of a length that the file's size does not bear out.

mod config;
mod container;
mod keys;
mod metadata;
mod names;
mod rope;
#[cfg(test)]
mod tests;
mod tokenizer;
mod types;
mod write;

use std::path::{Path, PathBuf};

use precast_plan::Family;
use tokenizers::Tokenizer;

use super::fault::{Fault, FileError};
use super::file::WeightFile;
use super::heads::Interleaved;
use super::store::{Tensor, Tensors};
use container::{Header, Named};
use metadata::Metadata;
pub(super) use tokenizer::splits_as_qwen2;
pub use write::FILE;
pub(super) use write::{Tensor as WrittenTensor, header, tensors};

/// Bytes that most headers without a vocabulary fit into.
const FIRST_HEAD_BYTES: u64 = 1 << 20;

/// A GGUF file of a model of a known family, version 2 or 3, little-endian: header read, weights on disk.
pub struct Gguf {
    path: PathBuf,
    /// The first bytes of the file: metadata and more.
    head: Vec<u8>,
    metadata: Metadata,
    family: &'static Family,
    pub(super) tensors: Tensors,
    /// What rotary frequencies are divided by, if the file has it.
    rope_factors: Option<Named>,
}

impl Gguf {
    /// True if the file starts with the GGUF magic. False for one that cannot be read.
    pub fn is_gguf(path: &Path) -> bool {
        WeightFile::open(path).and_then(|file| file.head(4)).is_ok_and(|head| head == container::MAGIC)
    }

    /// Opens a file, reads its header and finds every tensor's place. No weights are read. The file must not be
    /// written to for as long as the value lives.
    ///
    /// # Errors
    /// [`FileError`] for a file that cannot be read, is damaged, is one of several parts, or holds another
    /// architecture or tensors that its family does not have.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::read(path).map_err(|fault| fault.at(path))
    }

    fn read(path: &Path) -> Result<Self, Fault> {
        let file = WeightFile::open(path)?;
        let (head, Header { metadata, tensors }) = read_head(&file)?;
        let family = config::family(&metadata)?;
        let (factors, named): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|tensor| rope::is_factors(family, &tensor.name));
        // Where they are not right, the configuration says so.
        let heads = config::head_counts(family, &metadata).ok().filter(|_| family.gguf_interleaves_heads);
        let tensors = Tensors {
            files: vec![(path.to_owned(), file)],
            list: named.into_iter().map(|named| place(family, named)).collect::<Result<_, _>>()?,
            interleaved: heads.map(|(heads, kv_heads)| Interleaved { family, heads, kv_heads }),
            checksum: None,
        };
        let rope_factors = factors.into_iter().next();
        Ok(Self { path: path.to_owned(), head, metadata, family, tensors, rope_factors })
    }

    /// The model's shape as the value of a Hugging Face `config.json`.
    ///
    /// Keys: `architectures`, `model_type`, `hidden_size`, `intermediate_size`, `num_hidden_layers`,
    /// `num_attention_heads`, `num_key_value_heads`, `head_dim`, `vocab_size` (rows of the embedding),
    /// `rope_theta`, `rms_norm_eps`, `max_position_embeddings`, `tie_word_embeddings` (there is no output
    /// projection), `hidden_act`, `torch_dtype` (`float32`: weights are dequantized), `bos_token_id` and
    /// `eos_token_id` where the file has them, for llama and qwen3 `attention_bias`, and `rope_scaling` of type `llama3`
    /// where the file has the tensor `rope_freqs.weight` that scaling gives.
    ///
    /// # Errors
    /// [`FileError`] for keys that are missing or of the wrong type, and for what this program does not compute:
    /// rotary embeddings that are scaled otherwise or partial, sliding windows, values of another size than keys.
    pub fn config(&self) -> Result<serde_json::Value, FileError> {
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
    /// [`FileError`] for keys that are missing, lists that do not go together, and tokenizers that are not known.
    pub fn tokenizer(&self) -> Result<Tokenizer, FileError> {
        tokenizer::tokenizer(&self.metadata, &self.head).map_err(|fault| self.error(fault))
    }

    /// The tokenizer as a `tokenizer.model` has it, where it is one of SentencePiece: with the scores of its pieces, which no
    /// `tokenizer.json` holds and llama.cpp reads text by.
    ///
    /// # Errors
    /// [`FileError`] as [`Gguf::tokenizer`].
    pub(super) fn sentencepiece(&self) -> Result<Option<Vec<u8>>, FileError> {
        tokenizer::sentencepiece(&self.metadata, &self.head).map_err(|fault| self.error(fault))
    }

    /// True if the file has a tokenizer: converters may leave it out.
    pub(super) fn has_tokenizer(&self) -> bool {
        tokenizer::is_there(&self.metadata)
    }

    /// What belongs beside the tokenizer, as the value of a `tokenizer_config.json`: its class, the begin and end
    /// tokens and the chat template, where the file has them.
    ///
    /// # Errors
    /// [`FileError`] as [`Gguf::tokenizer`].
    pub fn tokenizer_config(&self) -> Result<serde_json::Value, FileError> {
        let tokenizer = self.tokenizer()?;
        self.config_beside(|id| tokenizer.id_to_token(id))
    }

    /// The same, of a tokenizer that has been read.
    pub(super) fn config_beside(&self, token: impl Fn(u32) -> Option<String>) -> Result<serde_json::Value, FileError> {
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

    fn error(&self, fault: Fault) -> FileError {
        fault.at(&self.path)
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

/// Finds a tensor's Hugging Face name.
fn place(family: &Family, Named { name, offset, tensor }: Named) -> Result<(String, Tensor), Fault> {
    if let Some(name) = names::hugging_face(family, &name) {
        return Ok((name, tensor));
    }
    let reason = match &name[..] {
        rope::FACTORS => "it scales the rotary embedding, which is supported in llama only",
        _ => "supported are dense models without adapters",
    };
    Err(Fault::Wrong(format!(
        "tensor {name} at byte {offset} has no place in a {} model that this program knows: {reason}",
        family.gguf
    )))
}
