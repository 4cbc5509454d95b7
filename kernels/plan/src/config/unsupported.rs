//! Refuses, by name, every setting of a `config.json` that would change the mathematics.

use precast_kernels::Gate;
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::fields;
use crate::family::{Experts, Family};

/// The neutral value of a setting.
pub(super) enum Neutral {
    Number(f64),
    Flag(bool),
    Text(&'static str),
    /// Missing, null, an empty object or an empty list.
    Absent,
}

impl Neutral {
    pub(super) fn is(&self, value: &Value) -> bool {
        value.is_null()
            || match self {
                Self::Number(neutral) => value.as_f64() == Some(*neutral),
                Self::Flag(neutral) => value.as_bool() == Some(*neutral),
                Self::Text(neutral) => value.as_str() == Some(*neutral),
                Self::Absent => {
                    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
                }
            }
    }
}

use Neutral::{Absent, Flag, Number, Text};

pub(super) const WHOLE: &str = "heads are rotated whole";
pub(super) const UNSCALED: &str = "only unscaled rotary embeddings are supported";
const DENSE: &str = "mixtures of experts are read of Qwen3 and Qwen3.5 alone";
const OF_ONE_KIND: &str = "layers are all of one kind: with experts, or none";
const UNSCALED_VALUES: &str = "activations and logits are not scaled";
const NOT_CAPPED: &str = "logits are not capped";
const SWIGLU: &str = "the MLP is SwiGLU: only `silu` is supported";
const GEGLU: &str = "the MLP is GeGLU: only `gelu_pytorch_tanh` is supported";
const GATED: &str = "a gate, the sigmoid of a part of the query projection, multiplies attention's output";
const FULL: &str = "only full causal attention is supported";

/// Settings with the values at which they change nothing, as transformers and the remote code of models spell them.
const SETTINGS: [(&str, Neutral, &str); 40] = [
    ("attention_dropout", Number(0.0), "dropout is not supported; set it to 0"),
    ("hidden_dropout", Number(0.0), "dropout is not supported; set it to 0"),
    ("resid_pdrop", Number(0.0), "dropout is not supported; set it to 0"),
    ("embd_pdrop", Number(0.0), "dropout is not supported; set it to 0"),
    ("use_sliding_window", Flag(false), FULL),
    ("attention_chunk_size", Absent, FULL),
    ("use_bidirectional_attention", Flag(false), FULL),
    ("is_causal", Flag(true), FULL),
    ("is_encoder_decoder", Flag(false), "only decoders are supported"),
    ("per_layer_config", Absent, "every layer has the same shape"),
    ("transformers_weights", Absent, "weights are read from model.safetensors, or from the files of its index"),
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
    ("output_gate_type", Text("swish"), "the gate of the delta rule's output is SiLU, which `swish` names"),
    ("mamba_ssm_dtype", Text("float32"), "states and decays are computed in fp32"),
    ("mlp_only_layers", Absent, OF_ONE_KIND),
    ("decoder_sparse_step", Number(1.0), OF_ONE_KIND),
    ("num_experts", Number(0.0), DENSE),
    ("num_local_experts", Number(0.0), DENSE),
    ("n_routed_experts", Number(0.0), DENSE),
];

/// Known models that nobody computes here, by `model_type`.
const MODELS: [(&str, &str); 13] = [
    ("gpt_oss", "gpt-oss has attention sinks, clamped gates and experts in MXFP4"),
    ("gemma4", GEMMA4),
    ("gemma4_text", GEMMA4),
    ("gemma4_unified", GEMMA4),
    ("gemma4_unified_text", GEMMA4),
    ("olmo_hybrid", "OLMo Hybrid has layers of linear attention"),
    ("lfm2", LFM2),
    ("lfm2_moe", LFM2),
    ("lfm2_vl", LFM2),
    ("phi3", "Phi-4-mini rotates a part of a head (partial_rotary_factor), Phi-3 scales it by longrope"),
    ("phi4_multimodal", "Phi-4-multimodal rotates a part of a head (partial_rotary_factor)"),
    ("kimi_linear", "Kimi Linear has layers of Kimi Delta Attention, whose decays are a channel's"),
    ("qwen3_next", "Qwen3-Next has layers of linear attention and mixtures of experts"),
];
const GEMMA4: &str = "Gemma 4 has embeddings of each layer, and layers that share keys and values";
const LFM2: &str = "LFM2 has layers of convolutions";

/// Refuses a known model by its name.
pub(super) fn refuse_model(model_type: &Value) -> Result<(), ConfigError> {
    match MODELS.iter().find(|(name, _)| model_type == name) {
        Some((_, reason)) => Err(refuse_at("model_type", model_type, reason)),
        None => Ok(()),
    }
}

/// Returns the settings of a family: its gate's activation, and those of all.
fn settings(family: &Family) -> impl Iterator<Item = (&'static str, Neutral, &'static str)> {
    let (activation, reason) = match family.gate {
        Gate::Silu => ("silu", SWIGLU),
        Gate::GeluTanh => ("gelu_pytorch_tanh", GEGLU),
    };
    let activations = ["hidden_act", "hidden_activation"].map(|field| (field, Text(activation), reason));
    let gate = if family.delta_rule { GATED } else { "attention's output has no gate" };
    activations.into_iter().chain([("attn_output_gate", Flag(family.delta_rule), gate)]).chain(SETTINGS)
}

/// Returns the error for a field at a value.
pub(super) fn refuse_at(field: impl Into<String>, value: &Value, reason: &'static str) -> ConfigError {
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    ConfigError::Unsupported { field: field.into(), value, reason }
}

/// Settings that scale values, of families with [`multipliers`](Family::multipliers).
pub(super) const MULTIPLIERS: [&str; 4] =
    ["attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling"];

/// True if a family computes what a setting says.
fn is_followed(family: &Family, field: &str) -> bool {
    match field {
        "no_rope_layers" => family.no_rope,
        "partial_rotary_factor" => family.delta_rule,
        "query_pre_attn_scalar" => family.root_scales,
        "rope_local_base_freq" => fields::is_known(family.model_type, field),
        "num_experts" => family.experts != Experts::None,
        field => family.multipliers && MULTIPLIERS.contains(&field),
    }
}

/// Refuses every setting that would change the mathematics of a family.
pub(super) fn refuse(config: &Value, family: &Family) -> Result<(), ConfigError> {
    for (field, neutral, reason) in settings(family).filter(|(field, ..)| !is_followed(family, field)) {
        if let Some(value) = config.get(field).filter(|value| !neutral.is(value)) {
            return Err(refuse_at(field, value, reason));
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

/// Returns the fields with a value that neither transformers' class nor this program knows: a model's own code may read
/// them.
pub fn unread_fields<'a>(config: &'a Value, family: &Family) -> Vec<&'a str> {
    let fields = config.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let is_setting = |name: &str| settings(family).any(|(setting, ..)| setting == name);
    let names = fields.map(|(name, _)| name.as_str()).filter(|name| !name.starts_with('_'));
    names.filter(|name| !fields::is_known(family.model_type, name) && !is_setting(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::family::FAMILIES;

    fn refused(field: &str, value: Value) -> String {
        let mut config = json!({});
        config[field] = value;
        refuse(&config, &FAMILIES[2]).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_changes_nothing_is_taken() {
        let taken = [
            ("partial_rotary_factor", json!(1.0)),
            ("attention_dropout", json!(0)),
            ("use_sliding_window", json!(false)),
            ("num_local_experts", json!(null)),
            ("quantization_config", json!(null)),
            ("something_else", json!("entirely")),
        ];
        for (field, value) in taken {
            assert_eq!(refused(field, value), "", "{field}");
        }
    }

    #[test]
    fn what_nobody_computes_is_refused_by_name() {
        for (field, neutral, _) in settings(&FAMILIES[2]) {
            let message = match neutral {
                Number(number) => {
                    assert_eq!(refused(field, json!(number)), "");
                    refused(field, json!(number + 0.5))
                }
                Flag(flag) => {
                    assert_eq!(refused(field, json!(flag)), "");
                    refused(field, json!(!flag))
                }
                Text(text) => {
                    assert_eq!(refused(field, json!(text)), "");
                    refused(field, json!(format!("{text}_")))
                }
                Absent => {
                    assert_eq!(refused(field, json!({})), "");
                    refused(field, json!(30.0))
                }
            };
            assert!(message.starts_with(&format!("unsupported {field} = ")), "{field}: {message}");
        }
    }

    #[test]
    fn the_activation_is_the_gate_s_of_the_family() {
        let family = Family { class: "A", gate: Gate::GeluTanh, ..FAMILIES[2] };
        let refused = |name: &str| refuse(&json!({"hidden_activation": name}), &family).err();
        assert!(refused("gelu_pytorch_tanh").is_none());
        assert!(refused("silu").unwrap().to_string().contains("only `gelu_pytorch_tanh` is supported"));
    }

    #[test]
    fn fields_of_no_class_are_named() {
        let config = json!({"hidden_size": 64, "_name_or_path": "a", "sink_tokens": 4, "mup": null, "qk_norm": false});
        assert_eq!(unread_fields(&config, &FAMILIES[0]), ["sink_tokens"]);
    }
}
