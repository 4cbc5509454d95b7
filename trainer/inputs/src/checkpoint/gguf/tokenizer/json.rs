//! A `tokenizer.json` as far as GGUF files say the same.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// A `tokenizer.json`, as far as GGUF says it.
#[derive(Deserialize)]
pub(super) struct Json {
    #[serde(default)]
    pub added_tokens: Vec<Added>,
    #[serde(default)]
    pub normalizer: Value,
    #[serde(default)]
    pub pre_tokenizer: Value,
    #[serde(default)]
    pub post_processor: Value,
    pub model: Value,
}

#[derive(Deserialize)]
pub(super) struct Added {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    pub special: bool,
}

/// A model of byte pairs, as the library writes it.
#[derive(Deserialize)]
pub(super) struct Bpe {
    pub vocab: HashMap<String, u32>,
    pub merges: Vec<(String, String)>,
    #[serde(default)]
    pub ignore_merges: bool,
}
