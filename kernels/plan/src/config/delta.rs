//! Reads the heads of the gated delta rule, and refuses those that no kernel computes.

use precast_kernels::{conv, delta_rule};
use serde_json::Value;

use super::error::ConfigError;
use super::unsupported::refuse_at;
use crate::family::Family;

/// Heads of the gated delta rule, each of [`delta_rule::HEAD`] elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Query and key heads.
    pub keys: u32,
    /// A multiple of them.
    pub values: u32,
}

impl DeltaHeads {
    /// Returns the width of queries, keys and values, which are convolved.
    pub fn channels(self) -> u32 {
        (2 * self.keys + self.values) * delta_rule::HEAD
    }

    /// Returns the width of the output, and of its gates.
    pub fn width(self) -> u32 {
        self.values * delta_rule::HEAD
    }

    /// True if GGUF files have value heads in another order: tiled over key heads, not those of each one after another.
    pub fn are_tiled(self) -> bool {
        self.values != self.keys
    }

    /// Returns the width of a row of the first GEMM: channels, gates, step sizes and decays.
    pub fn projected(self) -> u32 {
        self.channels() + self.width() + 2 * self.values
    }
}

/// Reads the heads of a family that has some.
///
/// # Errors
/// [`ConfigError`] for heads of another width, a convolution of another length, and value heads that key heads do not
/// share evenly.
pub(super) fn heads(config: &Value, family: &Family) -> Result<Option<DeltaHeads>, ConfigError> {
    if !family.delta_rule {
        return Ok(None);
    }
    let fixed = [
        ("linear_conv_kernel_dim", conv::TAPS.into(), "convolutions have 4 taps"),
        ("linear_key_head_dim", delta_rule::HEAD.into(), "heads of the delta rule have 128 elements"),
        ("linear_value_head_dim", delta_rule::HEAD.into(), "heads of the delta rule have 128 elements"),
    ];
    for (field, expected, reason) in fixed {
        if config[field].as_u64() != Some(expected) {
            return Err(refuse_at(field, &config[field], reason));
        }
    }
    let number = |field: &str| {
        let number = config[field].as_u64().filter(|heads| (1..=1 << 12).contains(heads));
        number.map(|heads| heads as u32).ok_or_else(|| refuse_at(field, &config[field], "expected a number of heads"))
    };
    let (keys, values) = (number("linear_num_key_heads")?, number("linear_num_value_heads")?);
    match values.is_multiple_of(keys) {
        true => Ok(Some(DeltaHeads { keys, values })),
        false => Err(ConfigError::Inconsistent(format!(
            "linear_num_value_heads is {values}, no multiple of linear_num_key_heads, {keys}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::ModelConfig;

    /// Qwen3.5 0.8B as it is published, with a change of its text model.
    fn read(change: impl Fn(&mut serde_json::Value)) -> Result<ModelConfig, String> {
        let mut whole = json!({
            "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": true,
            "text_config": {"attn_output_gate": true, "full_attention_interval": 4, "head_dim": 256,
                "hidden_size": 1024,
                "intermediate_size": 3584, "layer_types": ["linear_attention", "full_attention"],
                "linear_num_key_heads": 16, "linear_num_value_heads": 16, "mamba_ssm_dtype": "float32",
                "max_position_embeddings": 262_144, "mlp_only_layers": [], "model_type": "qwen3_5_text",
                "mtp_num_hidden_layers": 1, "num_attention_heads": 8, "num_hidden_layers": 2, "num_key_value_heads": 2,
                "output_gate_type": "swish", "rope_parameters": {"mrope_interleaved": true,
                    "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 1e7,
                    "rope_type": "default"}, "vocab_size": 248_320},
            "vision_config": {"depth": 12},
        });
        change(&mut whole["text_config"]);
        ModelConfig::from_json(&whole.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_published_model_has_heads_of_both_kinds() {
        let config = read(|_| ()).unwrap();
        let heads = config.delta_heads.unwrap();
        assert_eq!((heads.channels(), heads.width(), heads.projected()), (6144, 2048, 8224));
        assert_eq!((config.rotary, config.projected_width(), config.tied), (64, 5120, true));
        let kinds: Vec<&str> = config.layers.iter().map(|layer| layer.name()).collect();
        assert_eq!(kinds, ["linear_attention", "full_attention"]);
    }

    #[test]
    fn a_list_of_kinds_tells_more_than_an_interval_and_either_suffices() {
        let kinds = |change: fn(&mut serde_json::Value)| {
            let layers = read(change).unwrap().layers;
            layers.iter().map(|layer| layer.rope.is_some()).collect::<Vec<bool>>()
        };
        assert_eq!(kinds(|text| text["full_attention_interval"] = 1.into()), [false, true]);
        let interval: fn(&mut serde_json::Value) = |text| {
            text["layer_types"] = json!(null);
            text["num_hidden_layers"] = 5.into();
        };
        assert_eq!(kinds(interval), [false, false, false, true, false]);
        assert_eq!(kinds(|text| text["layer_types"] = json!(["attention", "mamba"])), [true, false]);
    }

    #[test]
    fn what_no_kernel_computes_is_refused_by_name() {
        let refused = [
            ("layer_types", json!(["linear_attention"]), "layer_types has a length of 1, num_hidden_layers is 2"),
            (
                "layer_types",
                json!(["full_attention", "conv"]),
                "unsupported layer_types = conv: only full_attention and",
            ),
            ("linear_conv_kernel_dim", json!(2), "unsupported linear_conv_kernel_dim = 2: convolutions have 4 taps"),
            ("linear_key_head_dim", json!(64), "unsupported linear_key_head_dim = 64: "),
            ("linear_value_head_dim", json!(256), "unsupported linear_value_head_dim = 256: "),
            ("linear_num_key_heads", json!(0), "unsupported linear_num_key_heads = 0: "),
            (
                "linear_num_value_heads",
                json!(24),
                "linear_num_value_heads is 24, no multiple of linear_num_key_heads, 16",
            ),
            ("output_gate_type", json!("sigmoid"), "unsupported output_gate_type = sigmoid: "),
            ("attn_output_gate", json!(false), "unsupported attn_output_gate = false: "),
            ("num_experts", json!(8), "unsupported num_experts = 8: "),
            ("mlp_only_layers", json!([1]), "unsupported mlp_only_layers = [1]: "),
            ("partial_rotary_factor", json!(0.5), "partial_rotary_factor is 0.5 and 0.25: remove the wrong one"),
            ("full_attention_interval", json!(0), ""),
        ];
        for (field, value, reason) in refused {
            let found = read(|text| text[field] = value.clone()).err().unwrap_or_default();
            assert!(found.contains(reason) && found.is_empty() == reason.is_empty(), "{field}: {found}");
        }
        let odd = read(|text| text["rope_parameters"]["partial_rotary_factor"] = 0.1.into()).unwrap_err();
        assert!(odd.starts_with("unsupported partial_rotary_factor = 0.1: an even number"), "{odd}");
        let narrow = read(|text| text["rope_parameters"]["partial_rotary_factor"] = 0.125.into());
        assert_eq!(narrow.map(|config| config.rotary), Ok(32));
        let section = read(|text| text["rope_parameters"]["mrope_section"] = json!([11, 11])).unwrap_err();
        assert!(section.starts_with("unsupported rope_parameters.mrope_section = [11,11]: "), "{section}");
        let rough = read(|text| text["rope_parameters"]["partial_rotary_factor"] = json!(10.0 / 256.0)).unwrap_err();
        assert!(rough.contains("a multiple of 16 is rotated of heads wider than 64"), "{rough}");
    }

    #[test]
    fn relatives_with_other_layers_are_refused_by_their_names() {
        for (model_type, name) in [
            ("qwen3_next", "Qwen3-Next"),
            ("kimi_linear", "Kimi Linear"),
            ("olmo_hybrid", "OLMo Hybrid"),
            ("granitemoehybrid", "Granite 4.0"),
        ] {
            let error =
                ModelConfig::from_json(&json!({ "model_type": model_type }).to_string()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
