//! The model's shape, as a Hugging Face `config.json` says it.

use serde_json::{Value, json};

use super::Gguf;
use super::error::Fault;
use super::keys;
use super::metadata::{Metadata, required};
use super::names::{EMBEDDING, Heads, LM_HEAD};

/// A family of models, as `general.architecture` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Llama,
    Qwen2,
}

const ARCHITECTURE_KEY: &str = "general.architecture";
const SPLIT_KEY: &str = "split.count";

impl Architecture {
    /// The architecture of a file, which has to hold a whole model.
    pub(super) fn of(metadata: &Metadata) -> Result<Self, Fault> {
        if let Some(parts) = metadata.integer(SPLIT_KEY)?.filter(|parts| *parts > 1) {
            let remedy = "the model is split over files; merge them with llama.cpp's llama-gguf-split --merge";
            return Err(metadata.refuse(SPLIT_KEY, parts, remedy));
        }
        match required(ARCHITECTURE_KEY, metadata.string(ARCHITECTURE_KEY)?)?.as_str() {
            "llama" => Ok(Self::Llama),
            "qwen2" => Ok(Self::Qwen2),
            other => Err(metadata.refuse(ARCHITECTURE_KEY, other, "supported are llama and qwen2")),
        }
    }

    /// As in the file; also the prefix of its keys.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
        }
    }

    /// A key of its own.
    pub(super) fn key(self, rest: &str) -> String {
        format!("{}.{rest}", self.name())
    }

    /// Query heads or key heads of a layer, at least one.
    pub(super) fn head_count(self, metadata: &Metadata, heads: Heads) -> Result<u64, Fault> {
        let query_key = self.key("attention.head_count");
        let key_key = self.key("attention.head_count_kv");
        let (key, count) = match (heads, metadata.integer(&key_key)?) {
            (Heads::Key, Some(count)) => (key_key, count),
            _ => (query_key.clone(), required(&query_key, metadata.integer(&query_key)?)?),
        };
        if count == 0 { Err(metadata.refuse(&key, count, "there must be a head")) } else { Ok(count) }
    }

    /// Refuses what would make the model compute something else than a plain llama or qwen2.
    fn check_supported(self, metadata: &Metadata, head_dim: u64) -> Result<(), Fault> {
        keys::check(self, metadata)?;
        let key = self.key("rope.dimension_count");
        if let Some(count) = metadata.integer(&key)?.filter(|count| *count != head_dim) {
            let expected = format!("rotary embeddings of less than a head ({head_dim}) are not supported");
            return Err(metadata.refuse(&key, count, expected));
        }
        let key = self.key("attention.value_length");
        if let Some(length) = metadata.integer(&key)?.filter(|length| *length != head_dim) {
            return Err(metadata.refuse(&key, length, format!("keys have {head_dim} and values must have as many")));
        }
        Ok(())
    }
}

/// See [`Gguf::config`].
pub(super) fn config(gguf: &Gguf) -> Result<Value, Fault> {
    let Gguf { metadata, architecture, tensors, .. } = gguf;
    let integer = |rest: &str| {
        let key = architecture.key(rest);
        required(&key, metadata.integer(&key)?)
    };
    let hidden_size = integer("embedding_length")?;
    let heads = architecture.head_count(metadata, Heads::Query)?;
    let head_dim = match metadata.integer(&architecture.key("attention.key_length"))? {
        Some(length) => length,
        None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
        None => {
            let expected = format!("{hidden_size} (embedding_length) must be a multiple of it");
            return Err(metadata.refuse(&architecture.key("attention.head_count"), heads, expected));
        }
    };
    architecture.check_supported(metadata, head_dim)?;
    let epsilon_key = architecture.key("attention.layer_norm_rms_epsilon");
    let embedding = tensors.get(EMBEDDING).ok_or_else(|| Fault::MissingTensor { tensor: EMBEDDING.to_owned() })?;
    let mut config = json!({
        "architectures": [architecture.class()],
        "model_type": architecture.name(),
        "hidden_size": hidden_size,
        "intermediate_size": integer("feed_forward_length")?,
        "num_hidden_layers": integer("block_count")?,
        "num_attention_heads": heads,
        "num_key_value_heads": architecture.head_count(metadata, Heads::Key)?,
        "head_dim": head_dim,
        "vocab_size": embedding.tensor.shape[0],
        "rope_theta": metadata.decimal(&architecture.key("rope.freq_base"))?.unwrap_or(10000.0),
        "rms_norm_eps": required(&epsilon_key, metadata.decimal(&epsilon_key)?)?,
        "max_position_embeddings": integer("context_length")?,
        "tie_word_embeddings": !tensors.contains_key(LM_HEAD),
        "hidden_act": "silu",
        "torch_dtype": "float32",
    });
    for (name, key) in
        [("bos_token_id", "tokenizer.ggml.bos_token_id"), ("eos_token_id", "tokenizer.ggml.eos_token_id")]
    {
        if let Some(id) = metadata.integer(key)? {
            config[name] = id.into();
        }
    }
    if *architecture == Architecture::Llama {
        config["attention_bias"] = tensors.keys().any(|name| name.ends_with(".bias")).into();
    }
    Ok(config)
}
