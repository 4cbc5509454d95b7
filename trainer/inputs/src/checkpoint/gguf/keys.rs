//! Metadata keys of an architecture: those that are followed, and those that change nothing at the value they have. A
//! key that is neither could change what the model computes.

use precast_plan::Family;
use precast_plan::family::{Experts, LINEAR, Windows};

use super::metadata::Metadata;
use crate::checkpoint::fault::Fault;

/// What is done with a key.
enum Rule {
    /// Followed, or without a meaning for what is computed.
    Taken,
    /// Must be this integer.
    Integer(u64, &'static str),
    /// Must be this number.
    Decimal(f64, &'static str),
    /// Must be this flag.
    Flag(bool, &'static str),
    /// Must be this text.
    Text(&'static str, &'static str),
}

use Rule::{Decimal, Flag, Integer, Taken, Text};

const SCALED: &str = "scaled rotary embeddings are not supported";
const EXPERTS: &str = "of mixtures of experts those of Qwen3 and Qwen3.5 are supported";
const WINDOW: &str = "sliding-window attention is not supported";
const CAPPED: &str = "capped logits are not supported";
const VALUES: &str = "scaled activations and logits are not supported";

/// Keys by what follows the architecture's name, as gguf-py's `constants.py` and llama.cpp's `llama-arch.cpp` have
/// them.
const RULES: [(&str, Rule); 48] = [
    ("block_count", Taken),
    ("context_length", Taken),
    ("embedding_length", Taken),
    ("feed_forward_length", Taken),
    ("vocab_size", Taken),
    ("tensor_data_layout", Taken),
    ("attention.head_count", Taken),
    ("attention.head_count_kv", Taken),
    ("attention.key_length", Taken),
    ("attention.value_length", Taken),
    ("attention.layer_norm_epsilon", Taken),
    ("attention.layer_norm_rms_epsilon", Taken),
    ("rope.dimension_count", Taken),
    ("rope.freq_base", Taken),
    ("rope.scaling.original_context_length", Taken),
    ("rope.scaling.finetuned", Taken),
    ("rope.scaling.type", Text("none", SCALED)),
    ("rope.scaling.factor", Decimal(1.0, SCALED)),
    ("rope.scaling.attn_factor", Decimal(1.0, SCALED)),
    ("rope.scale_linear", Decimal(1.0, SCALED)),
    ("rope.freq_scale", Decimal(1.0, SCALED)),
    (WINDOW_KEY, Integer(0, WINDOW)),
    ("attention.causal", Flag(true, "only causal attention is supported")),
    ("attention.scale", Decimal(0.0, "scores are scaled by the root of a head's length")),
    ("attention.clamp_kqv", Decimal(0.0, "clamped queries, keys and values are not supported")),
    ("attention.max_alibi_bias", Decimal(0.0, "ALiBi is not supported")),
    ("attn_logit_softcapping", Decimal(0.0, CAPPED)),
    ("final_logit_softcapping", Decimal(0.0, CAPPED)),
    ("router_logit_softcapping", Decimal(0.0, CAPPED)),
    ("logit_scale", Decimal(1.0, VALUES)),
    ("residual_scale", Decimal(1.0, VALUES)),
    ("embedding_scale", Decimal(1.0, VALUES)),
    ("use_parallel_residual", Flag(false, "attention and MLP follow each other")),
    ("swin_norm", Flag(false, "other norms are not supported")),
    ("pooling_type", Integer(0, "embedding models are not supported")),
    (COUNT_KEY, Integer(0, EXPERTS)),
    (USED_KEY, Integer(0, EXPERTS)),
    ("expert_shared_count", Integer(0, EXPERTS)),
    (WIDTH_KEY, Integer(0, EXPERTS)),
    (SHARED_WIDTH_KEY, Integer(0, EXPERTS)),
    ("expert_group_count", Integer(0, EXPERTS)),
    ("expert_weights_norm", Flag(true, EXPERTS)),
    ("expert_weights_scale", Decimal(1.0, EXPERTS)),
    ("expert_gating_func", Integer(1, EXPERTS)),
    ("moe_every_n_layers", Integer(0, EXPERTS)),
    ("interleave_moe_layer_step", Integer(0, EXPERTS)),
    ("leading_dense_block_count", Integer(0, EXPERTS)),
    ("nextn_predict_layers", Integer(0, "layers that predict further tokens are not supported")),
];

/// Keys of factors, and the fields of config.json that they are.
pub(super) const KEYS_OF_SCALES: [(&str, &str); 4] = [
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
];

pub(super) const WINDOW_KEY: &str = "attention.sliding_window";
/// Layers from one that no window bounds to the next.
pub(super) const PATTERN_KEY: &str = "attention.sliding_window_pattern";
/// Base of the rotary embedding of layers that a window bounds.
pub(super) const WINDOW_BASE_KEY: &str = "rope.freq_base_swa";
/// Kind of the scaling of the rotary embedding, and its factor.
pub(super) const SCALING_KEYS: [&str; 2] = ["rope.scaling.type", "rope.scaling.factor"];

pub(super) const CONV_KEY: &str = "ssm.conv_kernel";
/// Width of a head.
pub(super) const STATE_KEY: &str = "ssm.state_size";
/// Key heads.
pub(super) const GROUPS_KEY: &str = "ssm.group_count";
/// Value heads.
pub(super) const RANK_KEY: &str = "ssm.time_step_rank";
/// Width of all value heads.
pub(super) const INNER_KEY: &str = "ssm.inner_size";
pub(super) const INTERVAL_KEY: &str = "full_attention_interval";
/// For each layer if it has the gated delta rule, in place of the interval; older llama.cpp goes by that alone.
pub(super) const RECURRENT_KEY: &str = "attention.recurrent_layers";
/// Number of rotated elements of a head.
pub(super) const ROTARY_KEY: &str = "rope.dimension_count";
pub(super) const SECTIONS_KEY: &str = "rope.dimension_sections";
/// Layers behind the last that predict further tokens; they are not read.
pub(super) const MTP_KEY: &str = "nextn_predict_layers";

/// Experts of a layer.
pub(super) const COUNT_KEY: &str = "expert_count";
/// Experts of a token.
pub(super) const USED_KEY: &str = "expert_used_count";
/// Width of an expert.
pub(super) const WIDTH_KEY: &str = "expert_feed_forward_length";
pub(super) const SHARED_WIDTH_KEY: &str = "expert_shared_feed_forward_length";

/// Keys that the configuration of a model with the gated delta rule has.
const DELTA_RULE_KEYS: [&str; 9] =
    [CONV_KEY, STATE_KEY, GROUPS_KEY, RANK_KEY, INNER_KEY, INTERVAL_KEY, RECURRENT_KEY, SECTIONS_KEY, MTP_KEY];

/// True if the family's configuration has what a key says.
fn is_followed(family: &Family, rest: &str) -> bool {
    match rest {
        WINDOW_KEY | PATTERN_KEY | WINDOW_BASE_KEY => matches!(family.windows, Windows::Between { .. }),
        rest if SCALING_KEYS.contains(&rest) => family.rope.contains(&LINEAR),
        COUNT_KEY | USED_KEY | WIDTH_KEY => family.experts != Experts::None,
        SHARED_WIDTH_KEY => family.experts == Experts::RoutedAndShared,
        rest if DELTA_RULE_KEYS.contains(&rest) => family.delta_rule,
        rest => family.multipliers && KEYS_OF_SCALES.iter().any(|(scale, _)| *scale == rest),
    }
}

/// A key of the file that is the family's own.
pub(super) fn key_of(family: &Family, rest: &str) -> String {
    format!("{}.{rest}", family.gguf)
}

/// A value that is there and another than the neutral one, and why that is not followed.
fn another<T: PartialEq + ToString>(
    found: Option<T>,
    neutral: &T,
    why: &'static str,
) -> Option<(String, &'static str)> {
    found.filter(|found| found != neutral).map(|found| (found.to_string(), why))
}

/// Refuses the first key of the family that would change what the model computes.
pub(super) fn check(family: &Family, metadata: &Metadata) -> Result<(), Fault> {
    let prefix = key_of(family, "");
    for key in metadata.keys_after(&prefix).filter(|key| !is_followed(family, &key[prefix.len()..])) {
        let rule = RULES.iter().find(|(name, _)| *name == &key[prefix.len()..]).map(|(_, rule)| rule);
        let wrong = match rule {
            Some(Taken) => None,
            Some(Integer(neutral, why)) => another(metadata.integer(key)?, neutral, why),
            Some(Decimal(neutral, why)) => another(metadata.decimal(key)?, neutral, why),
            Some(Flag(neutral, why)) => another(metadata.flag(key)?, neutral, why),
            Some(Text(neutral, why)) => another(metadata.string(key)?, &(*neutral).to_owned(), why),
            None => Some(("set".to_owned(), "this program does not know what it changes in the model")),
        };
        if let Some((found, why)) = wrong {
            return Err(metadata.refuse(key, found, why));
        }
    }
    Ok(())
}
