//! A model's shape as keys of its architecture, as llama.cpp's converter writes them.

use precast_plan::{LayerConfig, ModelConfig, Multipliers};

use super::key_values::KeyValues;
use super::keys::{KEYS_OF_SCALES, key_of};
use crate::checkpoint::fault::Fault;

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

/// Layers of SmolLM3 from one without rotary embedding to the next, which llama.cpp assumes.
pub(super) const NO_ROPE_INTERVAL: usize = 4;

/// Refuses layers that readers would compute otherwise, as a file has no key for what they do.
fn check_layers(config: &ModelConfig) -> Result<(), Fault> {
    let rotates = |layer: usize| !(config.family.no_rope && (layer + 1).is_multiple_of(NO_ROPE_INTERVAL));
    let implied = |layer: usize| LayerConfig { window: None, rope: rotates(layer).then_some(0) };
    let Some((number, layer)) = config.layers.iter().enumerate().find(|(number, layer)| **layer != implied(*number))
    else {
        return Ok(());
    };
    let does = match layer {
        LayerConfig { window: Some(window), .. } => format!("sees a window of {window} keys"),
        LayerConfig { rope: Some(_), .. } => "has a rotary embedding".to_owned(),
        LayerConfig { rope: None, .. } => "has no rotary embedding".to_owned(),
    };
    let of = config.family.gguf;
    Err(Fault::Wrong(format!("layer {number} {does}, which GGUF files of architecture {of} cannot say")))
}

/// Adds the keys of a shape, and `general.file_type` in their midst.
///
/// # Errors
/// [`Fault`] where readers would compute another model of them.
pub(super) fn write(keys: &mut KeyValues, config: &ModelConfig, width: HeadWidth, file_type: u32) -> Result<(), Fault> {
    check_layers(config)?;
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
        score_scale,
        multipliers: Multipliers { embedding, residual, logits },
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
    if family.multipliers {
        let scales = [score_scale, embedding, residual, 1.0 / logits];
        KEYS_OF_SCALES.iter().zip(scales).for_each(|((rest, _), scale)| keys.float(&key(rest), scale));
    }
    keys.integer("general.quantization_version", 2);
    Ok(())
}
