//! What a run reads, and models as they are written: checkpoints, adapters, data, chats, tokenizers.

pub mod adapter;
pub mod added_tokens;
pub mod base;
mod charsmap;
pub mod chat;
pub mod checkpoint;
pub mod data;
pub mod hub;
mod members;
pub mod pair;
pub mod random;
pub mod random_blocks;
pub mod teacher_cache;
pub mod tokenizer;
