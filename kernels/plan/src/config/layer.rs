//! What a layer does that another layer of its model may do otherwise.

use serde_json::Value;

use super::error::ConfigError;
use super::fields;
use super::unsupported::{given, refuse_at};
use crate::family::{Family, Windows};
use crate::rope::Scaling;

/// Values of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Keys that a query sees, its own and those just before it; none: all before it.
    pub window: Option<u32>,
    /// Index in [`ropes`](super::ModelConfig::ropes) of what rotates its heads; none: nothing does.
    pub rope: Option<usize>,
}

impl LayerConfig {
    /// A layer that attends to all keys before a query and rotates by the first table.
    pub const FULL: Self = Self { window: None, rope: Some(0) };
}

/// A rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f32,
    /// Scaling of the frequencies, if any.
    pub scaling: Option<Scaling>,
}

/// Names of layers without a window in `layer_types`, in the old and the new spelling of transformers.
const FULL: [&str; 2] = ["full_attention", "attention"];

/// Reads what so many layers do.
///
/// # Errors
/// [`ConfigError`] for a kind of layer that the family has not, and for lists that contradict the number of layers or
/// each other.
pub(super) fn layers(config: &Value, family: &Family, count: u32) -> Result<Vec<LayerConfig>, ConfigError> {
    let window = window(config, family)?;
    check_types(config, window, count)?;
    let ropes = ropes(config, family, count)?;
    Ok(ropes.into_iter().map(|rotates| LayerConfig { window, rope: rotates.then_some(0) }).collect())
}

/// Returns the keys that a query sees in every layer, if a window bounds them.
fn window(config: &Value, family: &Family) -> Result<Option<u32>, ConfigError> {
    let positions = config.get("max_position_embeddings").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let Some(window) = given(config, "sliding_window") else { return Ok(None) };
    let number = window.as_u64().filter(|window| *window > 0);
    if number.is_some_and(|window| window >= positions) {
        return Ok(None);
    }
    match (family.windows, number.and_then(|window| u32::try_from(window).ok())) {
        (Windows::Every, Some(window)) => Ok(Some(window)),
        // Another field turns it on, which is refused.
        (Windows::Never, _) if fields::is_known(family, "use_sliding_window") => Ok(None),
        (Windows::Never, _) => Err(refuse_at("sliding_window", window, "only full causal attention is supported")),
        (Windows::Every, None) => Err(refuse_at("sliding_window", window, "expected a number of keys, or null")),
    }
}

/// Refuses `layer_types` of another length, of unknown kinds, and of others than the window says.
fn check_types(config: &Value, window: Option<u32>, count: u32) -> Result<(), ConfigError> {
    let Some(types) = given(config, "layer_types") else { return Ok(()) };
    let types = types.as_array().ok_or_else(|| refuse_at("layer_types", types, "expected a list of kinds"))?;
    let is_full = |kind: &Value| kind.as_str().is_some_and(|kind| FULL.contains(&kind));
    let is_sliding = |kind: &Value| kind.as_str() == Some("sliding_attention");
    let reason = match window {
        Some(_) => "sliding_window bounds every layer; set it to null, or name sliding_attention",
        None => "only full_attention layers are supported",
    };
    if let Some(kind) = types.iter().find(|kind| if window.is_some() { !is_sliding(kind) } else { !is_full(kind) }) {
        return Err(refuse_at("layer_types", kind, reason));
    }
    same_length("layer_types", types.len(), count)
}

/// Returns for each layer if its heads are rotated.
fn ropes(config: &Value, family: &Family, count: u32) -> Result<Vec<bool>, ConfigError> {
    if !family.no_rope {
        return Ok(vec![true; count as usize]);
    }
    if let Some(list) = given(config, "no_rope_layers") {
        let reason = "expected a list of 1, with rotary embedding, and 0, without, for each layer";
        let refuse = |value: &Value| refuse_at("no_rope_layers", value, reason);
        let list = list.as_array().ok_or_else(|| refuse(list))?;
        let rotates = |flag: &Value| match flag.as_u64() {
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            _ => Err(refuse(flag)),
        };
        let list = list.iter().map(rotates).collect::<Result<Vec<bool>, ConfigError>>()?;
        return same_length("no_rope_layers", list.len(), count).map(|()| list);
    }
    let interval = &config["no_rope_layer_interval"];
    match interval.as_u64().filter(|interval| *interval > 0) {
        Some(interval) => Ok((1..=u64::from(count)).map(|layer| !layer.is_multiple_of(interval)).collect()),
        None => Err(refuse_at("no_rope_layer_interval", interval, "expected a number of layers")),
    }
}

/// Refuses a list that does not have an entry for each layer.
fn same_length(field: &str, length: usize, layers: u32) -> Result<(), ConfigError> {
    if length == layers as usize {
        return Ok(());
    }
    let what = format!("{field} has a length of {length}, num_hidden_layers is {layers}");
    Err(ConfigError::Inconsistent(what))
}
