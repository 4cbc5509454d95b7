//! The text model in a model that also sees images.

use serde_json::{Value, json};

use super::error::ConfigError;
use super::fields;
use super::unsupported::{given, refuse_at};
use crate::family::Family;

/// Classes that see images, their `model_type`, and those of their text models: first the one that is meant where none
/// is named.
const CLASSES: [(&str, &str, &[&str]); 4] = [
    ("Gemma3ForConditionalGeneration", "gemma3", &["gemma3_text"]),
    ("Mistral3ForConditionalGeneration", "mistral3", &["mistral", "ministral3"]),
    ("Qwen3_5ForConditionalGeneration", "qwen3_5", &["qwen3_5_text"]),
    ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", &["qwen3_5_moe_text"]),
];

/// Fields of the whole model that its text model is read with, where it has none of its own.
const SHARED: [&str; 6] =
    ["bos_token_id", "eos_token_id", "tie_word_embeddings", "dtype", "torch_dtype", "quantization_config"];

/// Returns the `config.json` of the text model in a model that also sees images, with its class's defaults written out;
/// none of another model.
///
/// # Errors
/// [`ConfigError`] for a text model that is missing or of a family that such a model has not.
pub(super) fn text_config(whole: &Value) -> Result<Option<Value>, ConfigError> {
    let is_it = |(class, model_type, _): &&(&str, &str, _)| {
        whole["model_type"] == *model_type && given(whole, "architectures").is_none_or(|names| names[0] == *class)
    };
    let Some((_, _, families)) = CLASSES.iter().find(is_it) else { return Ok(None) };
    let mut text = whole["text_config"].clone();
    if !text.is_object() {
        return Err(refuse_at("text_config", &text, "expected the configuration of the text model"));
    }
    let named = given(&text, "model_type").cloned().unwrap_or_else(|| families[0].into());
    let family = named.as_str().filter(|name| families.contains(name)).and_then(Family::of_model_type);
    let refuse = || refuse_at("text_config.model_type", &named, "this model is not one that such a text model is in");
    let family = family.ok_or_else(refuse)?;
    (text["architectures"], text["model_type"]) = (json!([family.class]), named);
    for field in SHARED {
        if let (None, Some(value)) = (text.get(field), given(whole, field)) {
            text[field] = value.clone();
        }
    }
    fields::fill(&mut text, family.model_type, &[]);
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelConfig;

    /// Gemma 3 4B, as it is published.
    #[test]
    fn a_text_model_has_what_the_whole_says_and_the_defaults_of_its_class() {
        let whole = json!({
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 106],
            "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024},
            "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
        });
        let text = text_config(&whole).unwrap().unwrap();
        assert_eq!((&text["eos_token_id"], &text["torch_dtype"]), (&json!([1, 106]), &json!("bfloat16")));
        assert_eq!(text["architectures"], json!(["Gemma3ForCausalLM"]));
        let config = ModelConfig::from_json(&whole.to_string()).unwrap();
        assert_eq!(config, ModelConfig::from_json(&text.to_string()).unwrap());
        assert_eq!((config.heads, config.kv_heads, config.head_dim, config.vocab), (8, 4, 256, 262_208));
        assert_eq!((config.depth(), config.layers[4].window, config.layers[5].window), (34, Some(1024), None));
        assert!(config.tied && config.ropes[0].scaling.is_some());
        assert!(text_config(&text).unwrap().is_none());
    }

    #[test]
    fn text_models_of_other_families_and_quantized_ones_are_refused() {
        let read = |text: Value| {
            let whole =
                json!({"model_type": "mistral3", "text_config": text, "quantization_config": {"quant_method": "fp8"}});
            ModelConfig::from_json(&whole.to_string()).unwrap_err().to_string()
        };
        assert!(read(Value::Null).starts_with("unsupported text_config = null: "));
        assert!(read(json!({"model_type": "llama"})).starts_with("unsupported text_config.model_type = llama: "));
        assert!(read(json!({"model_type": "ministral3"})).starts_with("unsupported quantization_config = fp8: "));
        assert!(read(json!({})).starts_with("unsupported quantization_config = fp8: "));
    }
}
