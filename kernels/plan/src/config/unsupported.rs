//! Refuses, by name, every setting of a `config.json` that would change the mathematics.

use serde_json::Value;

use super::ConfigError;

/// The neutral value of a setting.
pub(super) enum Neutral {
    Number(f64),
    Flag(bool),
    /// Missing or null.
    Absent,
}

impl Neutral {
    pub(super) fn is(&self, value: &Value) -> bool {
        value.is_null()
            || match self {
                Self::Number(neutral) => value.as_f64() == Some(*neutral),
                Self::Flag(neutral) => value.as_bool() == Some(*neutral),
                Self::Absent => false,
            }
    }
}

use Neutral::{Absent, Flag, Number};

pub(super) const WHOLE: &str = "heads are rotated whole";
pub(super) const UNSCALED: &str = "only unscaled rotary embeddings are supported";
const DENSE: &str = "mixtures of experts are not supported";
const UNSCALED_VALUES: &str = "activations and logits are not scaled";
const NOT_CAPPED: &str = "logits are not capped";

/// Settings with the values at which they change nothing, as transformers and the remote code of models spell them.
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
    ("rope_interleaved", Flag(false), "the halves of a head are rotated, not neighbors"),
    ("rope_local_base_freq", Absent, "every layer rotates by one base"),
    ("no_rope_layers", Absent, "every layer is rotated"),
    ("use_qk_norm", Flag(false), "queries and keys are not normalized"),
    ("qk_norm", Flag(false), "queries and keys are not normalized"),
    ("qk_layernorm", Flag(false), "queries and keys are not normalized"),
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

/// Returns the error for a field at a value.
pub(super) fn refuse_at(field: impl Into<String>, value: &Value, reason: &'static str) -> ConfigError {
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    ConfigError::Unsupported { field: field.into(), value, reason }
}

/// Refuses every setting that would change the mathematics of any family.
pub(super) fn refuse(config: &Value) -> Result<(), ConfigError> {
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
        let reason = "give an unquantized checkpoint, or a GGUF file";
        return Err(refuse_at("quantization_config", method, reason));
    }
    Ok(())
}

/// Returns a field that is present and not null.
pub(super) fn given<'a>(config: &'a Value, field: &str) -> Option<&'a Value> {
    config.get(field).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(field: &str, value: Value) -> String {
        let mut config = json!({});
        config[field] = value;
        refuse(&config).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_changes_nothing_is_taken() {
        let taken = [
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
    fn what_nobody_computes_is_refused_by_name() {
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
