//! A model's shape as keys of its architecture, as llama.cpp's converter writes them.

use precast_plan::family::{LINEAR, QkNorm, Windows};
use precast_plan::rope::Scaling;
use precast_plan::{LayerConfig, ModelConfig, Multipliers};

use super::config::query_scalar;
use super::delta_rule;
use super::key_values::KeyValues;
use super::keys::{KEYS_OF_SCALES, PATTERN_KEY, SCALING_KEYS, WINDOW_BASE_KEY, WINDOW_KEY, key_of};
use crate::checkpoint::fault::Fault;

/// Whose converter writes more keys than those of all families.
pub(super) const LLAMA: &str = "llama";

/// Fields that config.json has, and files then too, though they follow from others or change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// True if the width of a head has a field of its own.
    head_dim: bool,
    /// Pairs that turn with each of three positions, `mrope_section`.
    sections: Option<[u32; 3]>,
}

impl Said {
    pub fn of(json: &serde_json::Value) -> Self {
        let rope = ["rope_parameters", "rope_scaling"].into_iter().filter_map(|object| json.get(object));
        let section = |value: &serde_json::Value| value.as_u64().and_then(|pairs| u32::try_from(pairs).ok());
        let sections = |object: &serde_json::Value| {
            let list = object.get("mrope_section")?.as_array()?;
            list.iter().filter_map(section).collect::<Vec<_>>().try_into().ok()
        };
        Self {
            head_dim: json.get("head_dim").is_some_and(serde_json::Value::is_number),
            sections: rope.filter_map(sections).next(),
        }
    }
}

/// Layers of SmolLM3 from one without rotary embedding to the next, which llama.cpp assumes.
pub(super) const NO_ROPE_INTERVAL: usize = 4;

/// Layers that a window bounds between those that see all keys.
struct Sliding {
    /// Values of each of them.
    layer: LayerConfig,
    /// Number of layers from one that sees all keys to the next.
    interval: usize,
    /// True if readers assume that number.
    is_assumed: bool,
}

impl Sliding {
    fn of(config: &ModelConfig) -> Option<Self> {
        let Windows::Between { full, .. } = config.family.windows else { return None };
        let layer = *config.layers.iter().find(|layer| layer.slides())?;
        let (layers, full) = (&config.layers, full as usize);
        let is_assumed =
            (1..).zip(layers).all(|(number, layer): (usize, _)| layer.slides() != number.is_multiple_of(full));
        let first = layers.iter().position(|layer| !layer.slides()).unwrap_or(layers.len());
        Some(Self { layer, interval: if is_assumed { full } else { first + 1 }, is_assumed })
    }
}

/// Refuses layers that readers would compute otherwise, as a file has no key for what they do.
fn check_layers(config: &ModelConfig, sliding: Option<&Sliding>, said: &Said) -> Result<(), Fault> {
    if config.family.delta_rule {
        return delta_rule::check(config, said.sections);
    }
    let rotates = |layer: usize| !(config.family.no_rope && (layer + 1).is_multiple_of(NO_ROPE_INTERVAL));
    let implied = |layer: usize| match sliding {
        Some(Sliding { layer: slides, interval, .. }) if !(layer + 1).is_multiple_of(*interval) => *slides,
        _ => LayerConfig { rope: rotates(layer).then_some(0), ..LayerConfig::FULL },
    };
    let Some((number, layer)) = config.layers.iter().enumerate().find(|(number, layer)| **layer != implied(*number))
    else {
        return Ok(());
    };
    let does = match layer {
        LayerConfig { window: Some(window), .. } => format!("sees a window of {window} keys"),
        LayerConfig { rope: Some(_), .. } if config.family.no_rope => "has a rotary embedding".to_owned(),
        LayerConfig { rope: Some(_), .. } => "sees all keys".to_owned(),
        LayerConfig { rope: None, .. } => "has no rotary embedding".to_owned(),
    };
    Err(unsaid(config, format_args!("layer {number} {does}")))
}

/// Refuses what readers would compute otherwise, or not at all, whatever a file says.
fn check(config: &ModelConfig) -> Result<(), Fault> {
    let ModelConfig { family, hidden, heads, head_dim, ropes, score_scale, .. } = config;
    if !family.has_gguf() {
        return Err(Fault::Wrong(format!("{family} cannot be written as a GGUF file: nothing here reads one of it")));
    }
    if config.experts.is_some() {
        return Err(Fault::Wrong(format!(
            "{family} is not written as a GGUF file: experts are read, and do not train"
        )));
    }
    let scalar = query_scalar(config.depth().into(), (*hidden).into(), (*heads).into(), (*head_dim).into());
    if family.root_scales && *score_scale != (scalar as f64).powf(-0.5) as f32 {
        return Err(unsaid(
            config,
            format_args!("scores are scaled otherwise than by query_pre_attn_scalar = {scalar}"),
        ));
    }
    if ropes.iter().skip(1).any(|rope| rope.scaling.is_some()) {
        return Err(unsaid(config, "the rotary embedding of layers with a window is scaled"));
    }
    // llama.cpp wants a head there, and queries as wide as the model.
    match family.qk_norm {
        QkNorm::Row if config.tied => Err(unsaid(config, "the head is the embedding (tie_word_embeddings)")),
        QkNorm::Row if heads * head_dim != *hidden => {
            Err(unsaid(config, format_args!("{heads} heads of {head_dim} are not as wide as the model, {hidden}")))
        }
        _ => Ok(()),
    }
}

fn unsaid(config: &ModelConfig, what: impl std::fmt::Display) -> Fault {
    Fault::Wrong(format!("{what}, which GGUF files of architecture {} cannot say", config.family.gguf))
}

/// Adds the keys of a shape, and `general.file_type` in their midst.
///
/// # Errors
/// [`Fault`] where readers would compute another model of them.
pub(super) fn write(keys: &mut KeyValues, config: &ModelConfig, said: &Said, file_type: u32) -> Result<(), Fault> {
    let sliding = Sliding::of(config);
    check(config)?;
    check_layers(config, sliding.as_ref(), said)?;
    let ModelConfig {
        family,
        hidden,
        intermediate,
        // Refused: no file is written of a model that does not train.
        experts: _,
        layers,
        heads,
        kv_heads,
        head_dim,
        // Of the gated delta rule.
        rotary: _,
        delta_heads: _,
        vocab,
        max_positions,
        rms_norm_eps,
        // Of Llama 3 a tensor says how frequencies are scaled.
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
    if let Some(Scaling::Linear(factor)) = ropes[0].scaling {
        let [kind_key, factor_key] = SCALING_KEYS.map(key);
        keys.string(&kind_key, LINEAR);
        keys.float(&factor_key, factor as f32);
    }
    delta_rule::write_said_sections(keys, config, said.sections);
    keys.float(&key("rope.freq_base"), ropes[0].theta);
    if let Some(local) = ropes.get(1) {
        keys.float(&key(WINDOW_BASE_KEY), local.theta);
    }
    keys.float(&key("attention.layer_norm_rms_epsilon"), rms_norm_eps);
    // Readers divide where nothing is said.
    if said.head_dim || head_dim * heads != hidden {
        keys.integer(&key("attention.key_length"), head_dim);
        keys.integer(&key("attention.value_length"), head_dim);
    }
    keys.integer("general.file_type", file_type);
    if let Some(Sliding { layer, interval, is_assumed }) = sliding {
        keys.integer(&key(WINDOW_KEY), layer.window.unwrap_or(max_positions));
        if !is_assumed {
            keys.integer(&key(PATTERN_KEY), interval as u32);
        }
    }
    if family.gguf == LLAMA {
        keys.integer(&key("vocab_size"), vocab);
        keys.integer(&key("rope.dimension_count"), head_dim);
    }
    if family.multipliers {
        let scales = [score_scale, embedding, residual, 1.0 / logits];
        KEYS_OF_SCALES.iter().zip(scales).for_each(|((rest, _), scale)| keys.float(&key(rest), scale));
    }
    delta_rule::write(keys, config, said.sections);
    keys.integer("general.quantization_version", 2);
    Ok(())
}
