//! Values of a layer, in which another layer of its model may differ.

use serde_json::Value;

use super::error::ConfigError;
use super::fields;
use super::unsupported::{given, refuse_at};
use crate::family::{Family, Windows};
use crate::rope::Scaling;

/// Kind of a layer: what mixes its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    Attention,
    /// The gated delta rule, which `layer_types` calls `linear_attention`.
    DeltaRule,
}

/// Values of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    pub kind: LayerKind,
    /// Keys that a query sees, its own and those just before it; none: all before it.
    pub window: Option<u32>,
    /// Index in [`ropes`](super::ModelConfig::ropes) of what rotates its heads; none: nothing does.
    pub rope: Option<usize>,
}

impl LayerConfig {
    /// A layer that attends to all keys before a query and rotates by the first table.
    pub const FULL: Self = Self { kind: LayerKind::Attention, window: None, rope: Some(0) };

    /// A layer of the gated delta rule.
    pub const DELTA_RULE: Self = Self { kind: LayerKind::DeltaRule, window: None, rope: None };

    /// Returns its name in `layer_types`.
    pub fn name(&self) -> &'static str {
        match self.kind {
            LayerKind::DeltaRule => "linear_attention",
            LayerKind::Attention if self.slides() => "sliding_attention",
            LayerKind::Attention => "full_attention",
        }
    }

    /// True if `layer_types` calls it `sliding_attention`: a window bounds it, or its rotary embedding is of such.
    pub fn slides(&self) -> bool {
        self.window.is_some() || self.rope == Some(1)
    }
}

/// A rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f32,
    /// Scaling of the frequencies, if any.
    pub scaling: Option<Scaling>,
}

impl RopeConfig {
    /// Returns the context length of the original training, where YaRN scales from that.
    pub(super) fn original(&self) -> Option<u32> {
        let Some(Scaling::Yarn(yarn)) = self.scaling else { return None };
        Some(yarn.original_max_position_embeddings)
    }
}

/// Reads what so many layers do.
///
/// # Errors
/// [`ConfigError`] for a kind of layer that the family has not, and for lists that contradict the number of layers or
/// each other.
pub(super) fn layers(config: &Value, family: &Family, count: u32) -> Result<Vec<LayerConfig>, ConfigError> {
    if family.delta_rule {
        return kinds(config, count);
    }
    let window = window(config, family)?;
    let sliding = sliding(config, family, window, count)?;
    let rotates = rotates(config, family, count)?;
    let of_own = matches!(family.windows, Windows::Between { .. });
    let layer = |(slides, rotates): (bool, bool)| LayerConfig {
        kind: LayerKind::Attention,
        window: window.filter(|_| slides),
        rope: rotates.then_some(usize::from(slides && of_own)),
    };
    Ok(sliding.into_iter().zip(rotates).map(layer).collect())
}

/// Returns what each layer of a family with the gated delta rule does: as `layer_types` has it, else each of
/// `full_attention_interval` attends. A list tells more than an interval, which models keep of which layers were
/// taken out.
fn kinds(config: &Value, count: u32) -> Result<Vec<LayerConfig>, ConfigError> {
    let kind = |attends: bool| if attends { LayerConfig::FULL } else { LayerConfig::DELTA_RULE };
    let Some(types) = given(config, "layer_types") else {
        let interval = given(config, "full_attention_interval").map_or(Some(4), Value::as_u64);
        let interval = interval.filter(|interval| *interval > 0).ok_or_else(|| {
            refuse_at("full_attention_interval", &config["full_attention_interval"], "expected a number of layers")
        })?;
        return Ok((1..=u64::from(count)).map(|layer| kind(layer.is_multiple_of(interval))).collect());
    };
    let types = types.as_array().ok_or_else(|| refuse_at("layer_types", types, "expected a list of kinds"))?;
    let of = |name: &Value| match name.as_str() {
        Some("full_attention" | "attention") => Ok(kind(true)),
        Some("linear_attention" | "mamba") => Ok(kind(false)),
        _ => Err(refuse_at("layer_types", name, "only full_attention and linear_attention layers are supported")),
    };
    let kinds = types.iter().map(of).collect::<Result<Vec<LayerConfig>, ConfigError>>()?;
    same_length("layer_types", kinds.len(), count).map(|()| kinds)
}

/// Returns the keys that a query sees in layers that slide, if that bounds any.
fn window(config: &Value, family: &Family) -> Result<Option<u32>, ConfigError> {
    let positions = config.get("max_position_embeddings").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let Some(window) = given(config, "sliding_window") else { return Ok(None) };
    let number = window.as_u64().filter(|window| *window > 0);
    if number.is_some_and(|window| window >= positions) {
        return Ok(None);
    }
    // Kernels add a window to a position.
    let number = number.and_then(|window| i32::try_from(window).ok()).map(i32::unsigned_abs);
    match (family.windows, number) {
        // Another field turns it on, which is refused.
        (Windows::Never, _) if fields::is_known(family.model_type, "use_sliding_window") => Ok(None),
        (Windows::Never, _) => Err(refuse_at("sliding_window", window, "only full causal attention is supported")),
        (_, Some(window)) => Ok(Some(window)),
        (_, None) => Err(refuse_at("sliding_window", window, "expected a number of keys, or null")),
    }
}

/// Returns for each layer if it slides: as `layer_types` has it, in the old or the new spelling of transformers, else
/// as its family does.
fn sliding(config: &Value, family: &Family, window: Option<u32>, count: u32) -> Result<Vec<bool>, ConfigError> {
    let pattern = "sliding_window_pattern";
    let implied = match family.windows {
        Windows::Never => vec![false; count as usize],
        Windows::Every | Windows::Listed => vec![window.is_some(); count as usize],
        Windows::Between { full, .. } => {
            let full = match given(config, pattern).filter(|_| fields::is_known(family.model_type, pattern)) {
                None => full,
                Some(full) => (full.as_u64().and_then(|full| u32::try_from(full).ok()).filter(|full| *full > 0))
                    .ok_or_else(|| refuse_at(pattern, full, "expected a number of layers"))?,
            };
            (1..=count).map(|layer| !layer.is_multiple_of(full)).collect()
        }
    };
    let Some(types) = given(config, "layer_types") else { return Ok(implied) };
    let types = types.as_array().ok_or_else(|| refuse_at("layer_types", types, "expected a list of kinds"))?;
    let may_slide = family.windows != Windows::Never;
    let slides = |kind: &Value| match kind.as_str() {
        Some("full_attention" | "attention") => Ok(false),
        Some("sliding_attention") if may_slide => Ok(true),
        _ if may_slide => {
            Err(refuse_at("layer_types", kind, "only full_attention and sliding_attention layers are supported"))
        }
        _ => Err(refuse_at("layer_types", kind, "only full_attention layers are supported")),
    };
    let types = types.iter().map(slides).collect::<Result<Vec<bool>, ConfigError>>()?;
    same_length("layer_types", types.len(), count)?;
    let rule = match family.windows {
        Windows::Every => Some("sliding_window"),
        Windows::Listed => given(config, "sliding_window").map_or(Some("sliding_window"), |_| None),
        _ => given(config, pattern).map(|_| pattern),
    };
    match rule.filter(|_| types != implied) {
        Some(rule) => Err(ConfigError::Inconsistent(format!(
            "layer_types and {rule} say otherwise which layers slide: remove the wrong one"
        ))),
        None => Ok(types),
    }
}

/// Returns for each layer if its heads are rotated.
fn rotates(config: &Value, family: &Family, count: u32) -> Result<Vec<bool>, ConfigError> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(model_type: &str, config: &Value, count: u32) -> Result<Vec<LayerConfig>, String> {
        let family = Family::of_model_type(model_type).expect("a family");
        layers(config, family, count).map_err(|error| error.to_string())
    }

    fn rotates(layers: Result<Vec<LayerConfig>, String>) -> Vec<bool> {
        layers.unwrap().iter().map(|layer| layer.rope.is_some()).collect()
    }

    #[test]
    fn kinds_of_layers_are_as_many_as_layers_and_windows_are_off() {
        for kind in ["full_attention", "attention"] {
            assert_eq!(read("llama", &json!({"layer_types": [kind]}), 1), Ok(vec![LayerConfig::FULL]));
        }
        let kinds = read("llama", &json!({"layer_types": ["full_attention", "full_attention"]}), 1).unwrap_err();
        assert_eq!(kinds, "inconsistent config.json: layer_types has a length of 2, num_hidden_layers is 1");
        let sliding = read("llama", &json!({"layer_types": ["sliding_attention"]}), 1).unwrap_err();
        assert!(sliding.starts_with("unsupported layer_types = sliding_attention: "), "{sliding}");
        let window = read("llama", &json!({"sliding_window": 4}), 1).unwrap_err();
        assert!(window.starts_with("unsupported sliding_window = 4: "), "{window}");
        let wide = json!({"sliding_window": 64, "max_position_embeddings": 64});
        assert_eq!(read("llama", &wide, 1), Ok(vec![LayerConfig::FULL]));
        assert_eq!(read("llama", &json!({"sliding_window": null}), 1), Ok(vec![LayerConfig::FULL]));
        // In Qwen another field turns it on.
        assert_eq!(read("qwen2", &json!({"sliding_window": 4}), 1), Ok(vec![LayerConfig::FULL]));
    }

    #[test]
    fn layers_of_ministral_slide_where_they_are_listed_else_all() {
        let windows =
            |config: Value| read("ministral", &config, 2).map(|layers| [0, 1].map(|layer: usize| layers[layer].window));
        let listed = json!(["sliding_attention", "full_attention"]);
        assert_eq!(windows(json!({"sliding_window": 4, "layer_types": listed})), Ok([Some(4), None]));
        assert_eq!(windows(json!({"sliding_window": 4})), Ok([Some(4), Some(4)]));
        assert_eq!(windows(json!({"sliding_window": null})), Ok([None, None]));
        let error = windows(json!({"sliding_window": null, "layer_types": listed})).unwrap_err();
        assert!(error.contains("layer_types and sliding_window say otherwise which layers slide"), "{error}");
    }

    #[test]
    fn layers_without_rotary_embedding_are_listed_or_follow_from_an_interval() {
        let listed = json!({"no_rope_layers": [1, 0, 1], "no_rope_layer_interval": 4});
        assert_eq!(rotates(read("smollm3", &listed, 3)), [true, false, true]);
        let interval = json!({"no_rope_layers": null, "no_rope_layer_interval": 2});
        assert_eq!(rotates(read("smollm3", &interval, 5)), [true, false, true, false, true]);
        for (config, reason) in [
            (json!({"no_rope_layers": [1, 0]}), "no_rope_layers has a length of 2, num_hidden_layers is 3"),
            (json!({"no_rope_layers": [1, 2, 1]}), "unsupported no_rope_layers = 2: "),
            (json!({"no_rope_layers": 4}), "unsupported no_rope_layers = 4: "),
            (json!({"no_rope_layer_interval": 0}), "unsupported no_rope_layer_interval = 0: "),
        ] {
            let error = read("smollm3", &config, 3).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
