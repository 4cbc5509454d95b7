//! GGUF files: llama.cpp's single-file models, read as if they were Hugging Face directories.
//!
//! [`Gguf`] reads the file's header; weights are dequantized one tensor at a time. The format is
//! described in ggml's `docs/gguf.md`. A file is not trusted: whatever is wrong with it is a [`Fault`](super::Fault),
//! and nothing is allocated on the word of a length that the file's size does not bear out.

mod config;
mod container;
mod delta_rule;
mod experts;
mod export;
mod file;
mod key_values;
mod keys;
mod metadata;
mod names;
mod read;
mod rope;
mod shape;
#[cfg(test)]
mod tests;
mod tokenizer;
mod types;
mod write;

pub(super) use container::MAGIC;
pub use export::Encoding;
pub(super) use export::{About, Export};
pub use file::Gguf;
pub use shape::Said;
pub(super) use tokenizer::{Files as TokenizerFiles, splits_as_qwen2};
pub use write::FILE;
pub(super) use write::{Tensor as WrittenTensor, Values, random_header, write};
