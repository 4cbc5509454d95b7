//! Reads what a mixture of experts has, and refuses what no kernel computes.

use precast_kernels::moe;
use serde_json::Value;

use super::error::ConfigError;
use super::unsupported::{given, refuse_at};
use crate::family::{Experts, Family};

/// A mixture of experts in place of each layer's MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsConfig {
    /// Experts that a router chooses among.
    pub count: u32,
    /// Experts that a token chooses.
    pub chosen: u32,
    /// True if the weights of a token's choices add up to 1.
    pub normalizes: bool,
    /// True if each token goes through one expert more, which has a gate of its own.
    pub has_shared: bool,
}

impl ExpertsConfig {
    /// Returns the experts that have weights.
    pub fn matrices(self) -> u32 {
        self.count + u32::from(self.has_shared)
    }

    /// Returns the experts that a token goes through.
    pub fn choices(self) -> u32 {
        self.chosen + u32::from(self.has_shared)
    }

    /// Returns the columns of the router's logits: whole vectors.
    pub fn columns(self) -> u32 {
        self.matrices().next_multiple_of(8)
    }
}

/// Spells fields of a family with experts in one way: `num_experts`, which files of transformers 5 call
/// `num_local_experts`.
///
/// # Errors
/// [`ConfigError`] for two numbers of experts that differ.
pub(super) fn spell(config: &mut Value, family: &Family) -> Result<(), ConfigError> {
    if family.experts == Experts::Routed
        && let Some(local) = given(config, "num_local_experts").cloned()
    {
        if let Some(count) = given(config, "num_experts").filter(|count| **count != local) {
            let what = format!("num_experts is {count}, and num_local_experts, which is the same, {local}");
            return Err(ConfigError::Inconsistent(what));
        }
        config["num_experts"] = local;
        config["num_local_experts"] = Value::Null;
    }
    Ok(())
}

/// Reads the experts of a family that has some, whose defaults are written out; writes their width as that of the MLP.
///
/// # Errors
/// [`ConfigError`] for more choices than experts, more of either than kernels take, a `norm_topk_prob` that is no flag,
/// and a shared expert of another width.
pub(super) fn experts(config: &mut Value, family: &Family) -> Result<Option<ExpertsConfig>, ConfigError> {
    if family.experts == Experts::None {
        return Ok(None);
    }
    let (most_experts, most_chosen) = moe::MOST;
    let number = |field: &str, most: u32, reason| {
        let number = config[field].as_u64().filter(|number| (1..=u64::from(most)).contains(number));
        number.map(|number| number as u32).ok_or_else(|| refuse_at(field, &config[field], reason))
    };
    let count = number("num_experts", most_experts, "expected 1 to 1024 experts")?;
    let chosen = number("num_experts_per_tok", most_chosen, "expected 1 to 31 experts a token")?;
    if chosen > count {
        let what = format!("num_experts_per_tok is {chosen}, and num_experts {count}");
        return Err(ConfigError::Inconsistent(what));
    }
    let width = number("moe_intermediate_size", 1 << 20, "expected the width of an expert")?;
    let has_shared = family.experts == Experts::RoutedAndShared;
    let shared = &config["shared_expert_intermediate_size"];
    if has_shared && shared.as_u64() != Some(width.into()) {
        let reason = "the shared expert is as wide as others, moe_intermediate_size";
        return Err(refuse_at("shared_expert_intermediate_size", shared, reason));
    }
    let normalizes = match &config["norm_topk_prob"] {
        // Qwen3.5's weights always add up to 1.
        _ if has_shared => true,
        Value::Bool(normalizes) => *normalizes,
        Value::Null => false,
        other => return Err(refuse_at("norm_topk_prob", other, "expected true or false")),
    };
    config["intermediate_size"] = width.into();
    Ok(Some(ExpertsConfig { count, chosen, normalizes, has_shared }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::ModelConfig;

    fn read(changes: Value) -> Result<ModelConfig, String> {
        let mut config = json!({
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64,
            "intermediate_size": 6144, "moe_intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_experts": 16, "num_experts_per_tok": 4, "vocab_size": 100, "max_position_embeddings": 128,
        });
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        config.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        ModelConfig::from_json(&config.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn experts_are_read_in_both_spellings() {
        let config = read(json!({})).unwrap();
        let experts = config.experts.unwrap();
        assert_eq!((config.intermediate, experts.count, experts.chosen), (24, 16, 4));
        assert!(!experts.normalizes && !experts.has_shared);
        let local = json!({"num_experts": null, "num_local_experts": 8, "norm_topk_prob": true});
        let experts = read(local).unwrap().experts.unwrap();
        assert!((experts.count, experts.normalizes) == (8, true));
    }

    #[test]
    fn what_experts_do_not_do_is_refused_by_name() {
        for (changes, reason) in [
            (json!({"num_local_experts": 8}), "num_experts is 16, and num_local_experts, which is the same, 8"),
            (json!({"num_experts_per_tok": 17}), "num_experts_per_tok is 17, and num_experts 16"),
            (json!({"num_experts_per_tok": 0}), "unsupported num_experts_per_tok = 0: expected 1 to 31"),
            (json!({"norm_topk_prob": 1}), "unsupported norm_topk_prob = 1: expected true or false"),
            (json!({"num_experts": 2048}), "unsupported num_experts = 2048: expected 1 to 1024"),
            (json!({"mlp_only_layers": [1]}), "unsupported mlp_only_layers = [1]: layers are all of one kind"),
            (json!({"decoder_sparse_step": 2}), "unsupported decoder_sparse_step = 2: layers are all of one kind"),
        ] {
            let error = read(changes).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
