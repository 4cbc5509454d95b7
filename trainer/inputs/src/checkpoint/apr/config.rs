//! The model's shape, as a Hugging Face `config.json` says it.

use precast_plan::family::{Bias, Experts, FAMILIES, Family, QkNorm, Windows};
use precast_plan::{ModelConfig, pads_by_default};
use serde_json::{Value, json};

use super::Apr;
use super::metadata::{Metadata, missing, refuse};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::single_file::SingleFile;
use crate::checkpoint::store::{EMBEDDING, LM_HEAD};

/// Values where a file says nothing.
const RMS_NORM_EPS: f64 = 1e-6;
const ROPE_THETA: f64 = 10000.0;
const MAX_POSITIONS: u64 = 32768;

/// The family of a file, by its `architecture` or else its `model_type`, in any spelling; its `model_type` may be of no
/// family, but not of another one.
pub(super) fn family(metadata: &Metadata) -> Result<&'static Family, Fault> {
    let says_layers = |family: &Family| family.windows == Windows::Never && !family.delta_rule;
    let has_experts = |family: &Family| family.experts != Experts::None;
    let is_read = |family: &Family| says_layers(family) && !has_experts(family);
    let supported = || format!("supported are {}", Family::list(is_read, |family| family.model_type));
    let Some((key, value)) = metadata.given(&["architecture", "model_type"]) else {
        return Err(missing("architecture", supported()));
    };
    let spelled = |value: &Value| {
        let named = value.as_str().unwrap_or_default();
        let spells = |name: &&str| name.eq_ignore_ascii_case(named);
        FAMILIES.iter().find(|family| [family.class, family.model_type, family.gguf].iter().any(spells))
    };
    let family = spelled(value).ok_or_else(|| refuse(key, value, supported()))?;
    let other = |other: &Family| other != family;
    match metadata.given(&["model_type"]).filter(|(_, value)| spelled(value).is_some_and(other)) {
        Some((key, value)) => Err(refuse(key, value, format!("architecture names {family}. Convert the model again"))),
        None if has_experts(family) => {
            Err(refuse(key, value, format!("experts of {family} are not read. Give its Hugging Face directory")))
        }
        None if !says_layers(family) => {
            let does = if family.delta_rule { "attend" } else { "see a window" };
            let unsaid = format!("files of {family} do not say which layers {does}. Give its Hugging Face directory");
            Err(refuse(key, value, unsaid))
        }
        None => Ok(family),
    }
}

/// Whether the rows of query and key heads have the halves of a head interleaved.
pub(super) fn interleaves_heads(metadata: &Metadata, family: &Family) -> Result<bool, Fault> {
    match (metadata.integer(&["rope_type"])?, family.gguf_interleaves_heads) {
        (Some(0), _) if family.qk_norm != QkNorm::None => {
            Err(refuse("rope_type", &0.into(), format!("{family} normalizes heads whose halves are apart (2)")))
        }
        (Some(0), _) => Ok(true),
        (Some(2), _) | (None, false) => Ok(false),
        (None, true) => Err(missing("rope_type", "whether a head's rows rotate as adjacent pairs (0) or halves (2)")),
        (Some(other), _) => Err(refuse("rope_type", &other.into(), "known are 0 (adjacent pairs) and 2 (halves)")),
    }
}

/// Query heads, at least one, and key heads.
pub(super) fn head_counts(metadata: &Metadata) -> Result<(u64, u64), Fault> {
    let heads = metadata.required(&["num_heads", "num_attention_heads"])?;
    let kv_heads = metadata.integer(&["num_kv_heads", "num_key_value_heads"])?.unwrap_or(heads);
    for (key, count) in [("num_heads", heads), ("num_kv_heads", kv_heads)] {
        if count == 0 {
            return Err(refuse(key, &0.into(), "there must be a head"));
        }
    }
    Ok((heads, kv_heads))
}

/// Fields that only some families read, spelled as in config.json.
const OF_FAMILIES: [&str; 6] = [
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "no_rope_layers",
    "no_rope_layer_interval",
];

/// See [`Apr::config`].
pub(super) fn config(apr: &Apr) -> Result<Value, Fault> {
    let config = of_metadata(apr)?;
    // What the file says besides may change the mathematics: then it is refused as it is of a config.json.
    let mut all = apr.metadata.0.clone();
    all.retain(|_, value| !value.is_null());
    all.extend(config.as_object().cloned().into_iter().flatten());
    let all = Value::Object(all);
    ModelConfig::from_json(&all.to_string()).map_err(|error| Fault::Wrong(error.to_string()))?;
    Ok(config)
}

fn of_metadata(apr: &Apr) -> Result<Value, Fault> {
    let Apr { metadata, family, tensors, .. } = apr;
    let (heads, kv_heads) = head_counts(metadata)?;
    let rows = tensors.shape(EMBEDDING).and_then(|shape| shape.first().copied());
    let vocab = match (metadata.integer(&["vocab_size"])?, rows) {
        (Some(size), _) | (None, Some(size)) => size,
        (None, None) => metadata.required(&["vocab_size"])?,
    };
    let flag = "tie_word_embeddings";
    let tied = metadata.get(&[flag], "expected true or false", Value::as_bool)?.unwrap_or(false);
    let mut config = json!({
        "architectures": [family.class],
        "model_type": family.model_type,
        "hidden_size": metadata.required(&["hidden_size"])?,
        "intermediate_size": metadata.required(&["intermediate_size"])?,
        "num_hidden_layers": metadata.required(&["num_layers", "num_hidden_layers"])?,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "rope_theta": metadata.decimal("rope_theta", ROPE_THETA)?,
        "rms_norm_eps": metadata.decimal("rms_norm_eps", RMS_NORM_EPS)?,
        "max_position_embeddings": metadata.integer(&["max_position_embeddings"])?.unwrap_or(MAX_POSITIONS),
        flag: tied || apr.empty_head,
        "hidden_act": metadata.string(&["hidden_act"])?.unwrap_or("silu"),
        "torch_dtype": "float32",
    });
    if let Some(head_dim) = metadata.integer(&["head_dim"])? {
        config["head_dim"] = head_dim.into();
    }
    for (name, id) in ["bos_token_id", "eos_token_id"].into_iter().zip(apr.token_ids()?) {
        if let Some(id) = id {
            config[name] = id.into();
        }
    }
    for field in OF_FAMILIES {
        if let Some((key, value)) = metadata.given(&[field]) {
            config[key] = value.clone();
        }
    }
    if pads_by_default(family) {
        config["pad_token_id"] = metadata.given(&["pad_token_id"]).map_or(Value::Null, |(_, id)| id.clone());
    }
    if let Some((key, scaling)) = metadata.given(&["rope_scaling", "rope_parameters"]) {
        config[key] = scaling.clone();
    }
    if let Bias::Configured(field) = family.qkv_bias {
        config[field] = tensors.names().any(|name| name != LM_HEAD && name.ends_with(".bias")).into();
    }
    Ok(config)
}
