//! Granite 4.0 with attention in every layer and no experts: Granite, in files that hold gate and up as one tensor.

use serde_json::{Value, json};

use super::error::ConfigError;
use super::fields;
use super::unsupported::{given, refuse_at};
use crate::family::Family;

/// Class of Granite 4.0, with and without layers of Mamba.
const CLASS: &str = "GraniteMoeHybridForCausalLM";

/// Its `model_type`.
const HYBRID: &str = "granitemoehybrid";

/// `model_type` that a dense one is read as.
const DENSE: &str = "granite";

/// Returns the `config.json` of Granite that computes what a dense Granite 4.0 does; none of another model.
///
/// # Errors
/// [`ConfigError`] for layers of Mamba, and for positions that rotate nothing. Experts are refused as those of Granite.
pub(super) fn granite_config(whole: &Value) -> Result<Option<Value>, ConfigError> {
    if whole["model_type"] != HYBRID {
        return Ok(None);
    }
    if let Some(classes) = given(whole, "architectures").filter(|classes| !classes[0].is_null() && classes[0] != CLASS)
    {
        return Err(refuse_at("architectures", classes, "model_type is granitemoehybrid, whose class is another"));
    }
    let mut config = whole.clone();
    fields::fill(&mut config, HYBRID, &fields::REQUIRED);
    refuse_mamba(&config)?;
    if config["position_embedding_type"] != "rope" {
        let reason = "Granite 4.0 is read with a rotary embedding in every layer: `rope`";
        return Err(refuse_at("position_embedding_type", &config["position_embedding_type"], reason));
    }
    if config["num_local_experts"].is_null() {
        return Err(refuse_at("num_local_experts", &Value::Null, "Granite 4.0 is read without experts: 0"));
    }
    let family = Family::of_model_type(DENSE).expect("a row of families");
    let width = given(whole, "shared_intermediate_size").cloned();
    // The class's own width is that of its experts.
    config["intermediate_size"] = width.ok_or_else(|| {
        ConfigError::Inconsistent("shared_intermediate_size is missing: the width of Granite 4.0's MLP".to_owned())
    })?;
    (config["architectures"], config["model_type"]) = (json!([family.class]), DENSE.into());
    if let Some(all) = config.as_object_mut() {
        let is_of_hybrids = |name: &str| fields::is_known(HYBRID, name) && !fields::is_known(DENSE, name);
        // Its MLP has no biases, whatever a field says that the class has not.
        let is_left_out = |name: &str| matches!(name, "layers_block_type" | "mlp_bias") || is_of_hybrids(name);
        all.retain(|name, _| name == "num_local_experts" || !is_left_out(name));
    }
    Ok(Some(config))
}

/// Refuses a list of layers that are not all attention, or of another length than there are layers. The list has two
/// names.
fn refuse_mamba(config: &Value) -> Result<(), ConfigError> {
    let reason = "Granite 4.0 is read with attention in every layer: Mamba is not";
    let lists = ["layer_types", "layers_block_type"].map(|field| Some((field, given(config, field)?)));
    if lists.iter().flatten().next().is_none() {
        return Err(refuse_at("layer_types", &Value::Null, reason));
    }
    for (field, kinds) in lists.into_iter().flatten() {
        let Some(kinds) = kinds.as_array() else { return Err(refuse_at(field, kinds, reason)) };
        let is_attention = |kind: &Value| matches!(kind.as_str(), Some("attention" | "full_attention"));
        if let Some(index) = kinds.iter().position(|kind| !is_attention(kind)) {
            return Err(refuse_at(format!("{field}[{index}]"), &kinds[index], reason));
        }
        let (listed, layers) = (kinds.len(), &config["num_hidden_layers"]);
        if layers.as_u64().is_some_and(|layers| layers != listed as u64) {
            let message = format!("{field} names {listed} layers, num_hidden_layers {layers}");
            return Err(ConfigError::Inconsistent(message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelConfig;

    /// Granite 4.0 350M, as it is published.
    fn published() -> Value {
        json!({
            "architectures": ["GraniteMoeHybridForCausalLM"], "attention_multiplier": 0.015625,
            "embedding_multiplier": 12, "hidden_size": 1024, "intermediate_size": 512,
            "layer_types": vec!["attention"; 28], "logits_scaling": 4, "mamba_n_heads": 128,
            "max_position_embeddings": 32768, "model_type": "granitemoehybrid", "num_attention_heads": 16,
            "num_experts_per_tok": 0, "num_hidden_layers": 28, "num_key_value_heads": 4, "num_local_experts": 0,
            "position_embedding_type": "rope", "residual_multiplier": 0.263, "rms_norm_eps": 1e-05,
            "rope_theta": 10_000_000, "shared_intermediate_size": 2048, "tie_word_embeddings": true,
            "torch_dtype": "bfloat16", "vocab_size": 100_352,
        })
    }

    fn read(change: impl FnOnce(&mut Value)) -> Result<ModelConfig, String> {
        let mut config = published();
        change(&mut config);
        ModelConfig::from_json(&config.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_dense_one_is_granite_with_the_width_of_its_mlp() {
        let granite = granite_config(&published()).unwrap().unwrap();
        assert_eq!(granite["architectures"], json!(["GraniteForCausalLM"]));
        assert!(granite.get("mamba_n_heads").is_none() && granite.get("layer_types").is_none(), "{granite}");
        let config = read(|_| ()).unwrap();
        assert_eq!(config, ModelConfig::from_json(&granite.to_string()).unwrap());
        assert_eq!((config.family.class, config.intermediate, config.depth()), ("GraniteForCausalLM", 2048, 28));
        assert_eq!(read(|config| config["layer_types"] = json!(vec!["full_attention"; 28])), Ok(config.clone()));
        let older = read(|config| {
            config["layers_block_type"] = config["layer_types"].take();
        });
        assert_eq!(older, Ok(config));
        assert!(granite_config(&granite).unwrap().is_none());
    }

    #[test]
    fn mamba_experts_and_models_without_rotary_embeddings_are_refused_by_name() {
        let refused = |field: &str, value: Value| read(|config| config[field] = value).unwrap_err();
        let mut kinds = vec!["attention"; 28];
        kinds[3] = "mamba";
        let message = refused("layer_types", json!(kinds));
        assert!(message.starts_with("unsupported layer_types[3] = mamba: Granite 4.0"), "{message}");
        let message = refused("layers_block_type", json!(kinds));
        assert!(message.starts_with("unsupported layers_block_type[3] = mamba: Granite 4.0"), "{message}");
        let message = refused("layer_types", json!(["attention"]));
        assert!(message.contains("layer_types names 1 layers, num_hidden_layers 28"), "{message}");
        for (field, value, expected) in [
            ("layer_types", Value::Null, "unsupported layer_types = null: "),
            ("position_embedding_type", "nope".into(), "unsupported position_embedding_type = nope: "),
            ("position_embedding_type", Value::Null, "unsupported position_embedding_type = null: "),
            ("num_local_experts", 62.into(), "unsupported num_local_experts = 62: "),
            ("num_local_experts", Value::Null, "unsupported num_local_experts = null: "),
        ] {
            let message = refused(field, value);
            assert!(message.starts_with(expected), "{message}");
        }
        let missing = |field: &str| {
            let gone = |config: &mut Value| drop(config.as_object_mut().unwrap().remove(field));
            read(gone).unwrap_err()
        };
        assert!(missing("num_local_experts").starts_with("unsupported num_local_experts = 8: "));
        assert!(missing("shared_intermediate_size").contains("shared_intermediate_size is missing"));
        assert!(missing("hidden_size").contains("hidden_size"));
    }

    #[test]
    fn no_field_of_the_class_is_ignored() {
        let mut base = json!({
            "model_type": HYBRID, "num_local_experts": 0, "position_embedding_type": "rope",
            "layer_types": vec!["attention"; 32],
        });
        fields::fill(&mut base, HYBRID, &[]);
        let read = |config: &Value| ModelConfig::from_json(&config.to_string()).map_err(|error| error.to_string());
        let expected = read(&base);
        assert!(expected.is_ok(), "{expected:?}");
        fields::each_is_treated(HYBRID, &base, |config| {
            let found = read(config);
            (found == expected, found.err())
        });
    }
}
