//! APR files of version 2: single-file models with Hugging Face's names, read as if they were Hugging Face directories.
//!
//! [`Apr`] reads the file's head; weights are read, and dequantized, one tensor at a time. A file is not trusted:
//! whatever is wrong with it is a [`Fault`](super::Fault), and nothing is allocated on the word of a length that the
//! file's size does not bear out. Its checksum is compared before the first weight is handed out.

mod config;
mod container;
mod file;
mod metadata;
mod read;
mod tokenizer;

pub(super) use container::MAGIC;
pub use file::Apr;
