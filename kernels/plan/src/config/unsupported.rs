//! What a `config.json` may ask for that would change the mathematics: refused by name, never passed over.

use serde_json::{Map, Value};

use super::ConfigError;
use crate::family::Family;

/// Rotary base where a file says nothing.
const ROPE_THETA: f64 = 10_000.0;

/// Where the settings of the rotary embedding are: newer files have `rope_parameters`, older ones `rope_scaling`.
const ROPE_OBJECTS: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// A setting that this program follows at one value only.
enum Neutral {
    /// A number.
    Number(f64),
    /// A flag.
    Flag(bool),
    /// None at all.
    Absent,
}

impl Neutral {
    fn is(&self, value: &Value) -> bool {
        value.is_null()
            || match self {
                Self::Number(neutral) => value.as_f64() == Some(*neutral),
                Self::Flag(neutral) => value.as_bool() == Some(*neutral),
                Self::Absent => false,
            }
    }
}

use Neutral::{Absent, Flag, Number};

const WHOLE: &str = "heads are rotated whole";
const UNSCALED: &str = "only unscaled rotary embeddings are supported";
const DENSE: &str = "mixtures of experts are not supported";
const UNSCALED_VALUES: &str = "activations and logits are not scaled";
const NOT_CAPPED: &str = "logits are not capped";

/// Settings and the values at which they change nothing, as transformers and the remote code of models spell them.
const SETTINGS: [(&str, Neutral, &str); 31] = [
    ("attention_dropout", Number(0.0), "dropout is not supported; set it to 0"),
    ("hidden_dropout", Number(0.0), "dropout is not supported; set it to 0"),
    ("resid_pdrop", Number(0.0), "dropout is not supported; set it to 0"),
    ("embd_pdrop", Number(0.0), "dropout is not supported; set it to 0"),
    ("use_sliding_window", Flag(false), "only full causal attention is supported"),
    ("is_causal", Flag(true), "only full causal attention is supported"),
    ("partial_rotary_factor", Number(1.0), WHOLE),
    ("rotary_pct", Number(1.0), WHOLE),
    ("rope_pct", Number(1.0), WHOLE),
    ("rotary_percent", Number(1.0), WHOLE),
    ("rope_ratio", Number(1.0), UNSCALED),
    ("rope_factor", Number(1.0), UNSCALED),
    ("rope_scaling_factor", Number(1.0), UNSCALED),
    ("rope_freq_scale", Number(1.0), UNSCALED),
    ("rope_interleaved", Flag(false), "the halves of a head are rotated, not neighbours"),
    ("rope_local_base_freq", Absent, "every layer rotates by one base"),
    ("no_rope_layers", Absent, "every layer is rotated"),
    ("use_qk_norm", Flag(false), "queries and keys are not normalised"),
    ("qk_norm", Flag(false), "queries and keys are not normalised"),
    ("qk_layernorm", Flag(false), "queries and keys are not normalised"),
    ("query_pre_attn_scalar", Absent, "scores are scaled by the root of head_dim"),
    ("attention_multiplier", Absent, "scores are scaled by the root of head_dim"),
    ("attn_logit_softcapping", Absent, NOT_CAPPED),
    ("final_logit_softcapping", Absent, NOT_CAPPED),
    ("embedding_multiplier", Number(1.0), UNSCALED_VALUES),
    ("residual_multiplier", Number(1.0), UNSCALED_VALUES),
    ("logits_scaling", Number(1.0), UNSCALED_VALUES),
    ("logit_scale", Number(1.0), UNSCALED_VALUES),
    ("num_experts", Number(0.0), DENSE),
    ("num_local_experts", Number(0.0), DENSE),
    ("n_routed_experts", Number(0.0), DENSE),
];

fn refuse_at(field: impl Into<String>, value: &Value, reason: &'static str) -> ConfigError {
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    ConfigError::Unsupported { field: field.into(), value, reason }
}

/// Refuses every setting that would change the mathematics.
pub(super) fn refuse(config: &Value, family: &Family) -> Result<(), ConfigError> {
    for field in ["hidden_act", "hidden_activation"] {
        if let Some(act) = given(config, field).filter(|act| act.as_str() != Some("silu")) {
            return Err(refuse_at(field, act, "the MLP is SwiGLU: only `silu` is supported"));
        }
    }
    for (field, neutral, reason) in SETTINGS {
        if let Some(value) = config.get(field).filter(|value| !neutral.is(value)) {
            return Err(refuse_at(field, value, reason));
        }
    }
    let full = |kind: &&Value| kind.as_str() != Some("full_attention");
    if let Some(kinds) = given(config, "layer_types") {
        let kinds = kinds.as_array().ok_or_else(|| refuse_at("layer_types", kinds, "expected a list of kinds"))?;
        if let Some(kind) = kinds.iter().find(full) {
            return Err(refuse_at("layer_types", kind, "only full_attention layers are supported"));
        }
    }
    if let Some(quantization) = given(config, "quantization_config") {
        let method = quantization.get("quant_method").unwrap_or(quantization);
        let reason = "give an unquantised checkpoint, or a GGUF file";
        return Err(refuse_at("quantization_config", method, reason));
    }
    for name in ROPE_OBJECTS {
        if let Some(object) = rope_object(config, name)? {
            refuse_rope(name, object, family)?;
        }
    }
    Ok(())
}

/// A field that is there and not null.
fn given<'a>(config: &'a Value, field: &str) -> Option<&'a Value> {
    config.get(field).filter(|value| !value.is_null())
}

fn rope_object<'a>(config: &'a Value, name: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
    let Some(value) = given(config, name) else { return Ok(None) };
    let object = value.as_object().ok_or_else(|| refuse_at(name, value, "expected an object or null"));
    object.map(Some)
}

/// Refuses all but the family's types and what means nothing there.
fn refuse_rope(name: &'static str, object: &Map<String, Value>, family: &Family) -> Result<(), ConfigError> {
    // The type says most: it is what a person looks for.
    for kind in ["rope_type", "type"] {
        let known = |kind: &&Value| kind.as_str().is_some_and(|kind| family.rope.contains(&kind));
        if let Some(found) = object.get(kind).filter(|kind| !kind.is_null() && !known(kind)) {
            let reason = "only unscaled rotary embeddings (type `default`) are supported";
            return Err(refuse_at(format!("{name}.{kind}"), found, reason));
        }
    }
    for (key, value) in object {
        let (neutral, reason) = match key.as_str() {
            "rope_type" | "type" | "rope_theta" | "original_max_position_embeddings" => continue,
            "partial_rotary_factor" => (Number(1.0), WHOLE),
            _ => (Number(1.0), UNSCALED),
        };
        // Of what is not known here only a factor can be told to change nothing.
        let known = matches!(key.as_str(), "partial_rotary_factor" | "factor" | "attention_factor");
        if !(known && neutral.is(value) || value.is_null()) {
            return Err(refuse_at(format!("{name}.{key}"), value, reason));
        }
    }
    Ok(())
}

/// The base of the rotary embedding: every place that gives one gives the same.
pub(super) fn rope_theta(config: &Value) -> Result<f64, ConfigError> {
    let mut found: Option<(String, f64)> = None;
    let nested = ROPE_OBJECTS.map(|name| (format!("{name}.rope_theta"), config.get(name)));
    for (name, object) in [("rope_theta".to_owned(), Some(config))].into_iter().chain(nested) {
        let Some(value) = object.and_then(|object| given(object, "rope_theta")) else { continue };
        let theta = value.as_f64().ok_or_else(|| ConfigError::Inconsistent(format!("{name} is {value}")))?;
        match &found {
            Some((first, other)) if *other != theta => {
                return Err(ConfigError::Inconsistent(format!(
                    "{first} is {other} and {name} is {theta}: remove the wrong one"
                )));
            }
            _ => found = Some((name, theta)),
        }
    }
    Ok(found.map_or(ROPE_THETA, |(_, theta)| theta))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(field: &str, value: Value) -> String {
        let mut config = json!({});
        config[field] = value;
        let family = Family::of_config("llama").expect("a family");
        match refuse(&config, family).and_then(|()| rope_theta(&config)) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn rotary_settings_in_any_spelling() {
        let refused = [
            ("rope_scaling", json!("yarn")),
            ("rope_scaling", json!(2.0)),
            ("rope_scaling", json!({"factor": 2.0})),
            ("rope_scaling", json!({"type": "default", "mrope_section": [16, 24, 24]})),
            ("rope_scaling", json!({"rope_type": "default", "type": "mrope"})),
            ("rope_parameters", json!("default")),
            ("rope_parameters", json!({"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0})),
            ("rope_parameters", json!({"rope_type": "default", "partial_rotary_factor": 0.5})),
            ("rope_parameters", json!({"full_attention": {"rope_type": "default"}})),
            ("rope_parameters", json!({"rope_theta": "1e6"})),
            ("partial_rotary_factor", json!(0.25)),
            ("rotary_pct", json!(0.25)),
            ("rope_ratio", json!(500)),
            ("rope_local_base_freq", json!(1e4)),
        ]
        .map(|(field, value)| refused(field, value));
        insta::assert_snapshot!(refused.join("\n"));
    }

    #[test]
    fn what_changes_nothing_is_taken() {
        let taken = [
            ("rope_scaling", json!(null)),
            ("rope_scaling", json!({})),
            ("rope_scaling", json!({"type": "default", "factor": 1.0})),
            ("rope_parameters", json!({"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 1})),
            ("partial_rotary_factor", json!(1.0)),
            ("attention_dropout", json!(0)),
            ("use_sliding_window", json!(false)),
            ("num_local_experts", json!(null)),
            ("layer_types", json!(["full_attention"])),
            ("quantization_config", json!(null)),
            ("something_else", json!("entirely")),
        ];
        for (field, value) in taken {
            assert_eq!(refused(field, value), "", "{field}");
        }
    }

    #[test]
    fn two_bases_are_one_too_many() {
        let both = |nested: f64| {
            rope_theta(&json!({"rope_theta": 1e6, "rope_parameters": {"rope_theta": nested}}))
                .map_err(|e| e.to_string())
        };
        assert_eq!(both(1e6), Ok(1e6));
        let wrong = "rope_theta is 1000000 and rope_parameters.rope_theta is 10000: remove the wrong one";
        assert_eq!(both(1e4), Err(format!("inconsistent config.json: {wrong}")));
        assert_eq!(rope_theta(&json!({})).unwrap(), ROPE_THETA);
    }

    #[test]
    fn other_mathematics() {
        for (field, neutral, _) in SETTINGS {
            let message = match neutral {
                Number(number) => {
                    assert_eq!(refused(field, json!(number)), "");
                    refused(field, json!(number + 0.5))
                }
                Flag(flag) => {
                    assert_eq!(refused(field, json!(flag)), "");
                    refused(field, json!(!flag))
                }
                Absent => refused(field, json!(30.0)),
            };
            assert!(message.starts_with(&format!("unsupported {field} = ")), "{field}: {message}");
        }
    }
}
