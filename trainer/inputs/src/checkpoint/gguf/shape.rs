//! A model's shape as keys of its architecture, as llama.cpp's converter writes them.

use precast_plan::ModelConfig;

use super::key_values::KeyValues;
use super::keys::key_of;

/// Whose converter writes more keys than those of all families.
pub(super) const LLAMA: &str = "llama";

/// How the configuration gives the width of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadWidth {
    /// By a number of its own.
    Said,
    /// It follows from other numbers.
    Implied,
}

impl HeadWidth {
    pub fn of(json: &serde_json::Value) -> Self {
        if json.get("head_dim").is_some_and(serde_json::Value::is_number) { Self::Said } else { Self::Implied }
    }
}

/// Adds the keys of a shape, and `general.file_type` in their midst.
pub(super) fn write(keys: &mut KeyValues, config: &ModelConfig, width: HeadWidth, file_type: u32) {
    let ModelConfig {
        family,
        hidden,
        intermediate,
        layers,
        heads,
        kv_heads,
        head_dim,
        vocab,
        max_positions,
        rms_norm_eps,
        // A tensor says how frequencies are scaled.
        ropes,
        // The tensors that there are say so.
        tied: _,
        qkv_bias: _,
        o_bias: _,
        mlp_bias: _,
        padding: _,
    } = config.clone();
    let key = |rest: &str| key_of(family, rest);
    let integers = [
        ("block_count", layers.len() as u32),
        ("context_length", max_positions),
        ("embedding_length", hidden),
        ("feed_forward_length", intermediate),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv_heads),
    ];
    integers.iter().for_each(|(rest, value)| keys.integer(&key(rest), *value));
    keys.float(&key("rope.freq_base"), ropes[0].theta);
    keys.float(&key("attention.layer_norm_rms_epsilon"), rms_norm_eps);
    // Readers divide where nothing is said.
    if width == HeadWidth::Said || head_dim * heads != hidden {
        keys.integer(&key("attention.key_length"), head_dim);
        keys.integer(&key("attention.value_length"), head_dim);
    }
    keys.integer("general.file_type", file_type);
    if family.gguf == LLAMA {
        keys.integer(&key("vocab_size"), vocab);
        keys.integer(&key("rope.dimension_count"), head_dim);
    }
    keys.integer("general.quantization_version", 2);
}
