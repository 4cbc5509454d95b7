//! The tokenizer that a file describes in its metadata.

mod byte_level;
mod json;
mod keys;
mod read;
mod sentencepiece;
mod vocabulary;
mod write;

pub(in crate::checkpoint) use byte_level::splits_as_qwen2;
pub(super) use keys::{BOS_KEY, EOS_KEY, PADDING_KEY, TEMPLATE_KEY};
pub(super) use read::{is_there, sentencepiece, tokenizer};
#[cfg(test)]
pub(super) use sentencepiece::pieces;
pub(in crate::checkpoint) use write::Files;
pub(super) use write::write;
