//! The pool of what layers keep of sequences, the rows that decoding computes, and what becomes of them.

use precast_kernels::Dtype;
use precast_kernels::conv::TAPS;
use precast_kernels::delta_rule::{CHUNK, HEAD};

use crate::category;
use crate::config::ModelConfig;
use precast_core::plan::{Builder, Lifetime, Tensor};

/// Sequences that are written at a time, and tokens of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    pub count: u32,
    pub seq_len: u32,
}

/// Buffers in which a layer keeps the sequences of slots, a sequence a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LayerCache {
    Attention(KeyValueCache),
    DeltaRule(DeltaRuleCache),
}

/// Keys and values of a layer: `[slots, kv_heads, seq_len, head_dim]` each, in the dtype of activations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyValueCache {
    pub keys: Tensor,
    pub values: Tensor,
    pub slots: u32,
    /// Tokens that a slot has room for.
    pub seq_len: u32,
}

/// States of a layer of the gated delta rule, and chunks that are not full, as `conv.decode` and `delta_rule.decode`
/// have them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaRuleCache {
    /// Tokens that the next convolution reads, `[slots, 3, channels]`.
    pub history: Tensor,
    /// States before the chunk, `[slots, value_heads, 128, 128]` f32.
    pub states: Tensor,
    /// These, rounded: all that tokens read of them.
    pub rounded: Tensor,
    /// Keys of the chunk, `[slots, key_heads, 64, 128]`.
    pub keys: Tensor,
    /// Factors that normalize them, `[slots, key_heads, 64]` f32.
    pub scale: Tensor,
    /// Logs of decays within the chunk, `[slots, value_heads, 64]` f32.
    pub decay: Tensor,
    /// Rows of the chunk's inverse, `[slots, value_heads, 64, 64]` f32.
    pub inverse: Tensor,
    /// Changes of the state that the chunk's tokens ask for, `[slots, value_heads, 64, 128]`.
    pub change: Tensor,
    pub slots: u32,
}

impl LayerCache {
    /// Returns the cache of a layer that attends.
    ///
    /// # Panics
    /// If it is of another kind.
    pub(crate) fn attention(self) -> KeyValueCache {
        let Self::Attention(cache) = self else { panic!("a layer that attends has keys and values") };
        cache
    }

    /// Returns the cache of a layer of the gated delta rule.
    ///
    /// # Panics
    /// If it is of another kind.
    pub(crate) fn delta_rule(self) -> DeltaRuleCache {
        let Self::DeltaRule(cache) = self else { panic!("a layer of the gated delta rule has states") };
        cache
    }

    /// Returns the bytes that the next token of a sequence of `length` tokens reads, on average over a chunk.
    pub(crate) fn bytes_read(&self, length: u32) -> u64 {
        match self {
            Self::Attention(KeyValueCache { keys, values, slots, seq_len }) => {
                (keys.bytes() + values.bytes()) / (u64::from(*slots) * u64::from(*seq_len)) * u64::from(length)
            }
            Self::DeltaRule(cache) => {
                let DeltaRuleCache { history, states, rounded, keys, scale, decay, inverse, change, slots } = cache;
                let chunk: u64 = [keys, scale, decay, inverse, change].map(|tensor| tensor.bytes()).iter().sum();
                // The first chunk has no state before it; the last token of each moves the state.
                let states = if length > CHUNK { rounded.bytes() + states.bytes() / u64::from(CHUNK) } else { 0 };
                (history.bytes() + states + chunk / 2) / u64::from(*slots)
            }
        }
    }
}

/// Tokens that are computed together, a row each, wherever they are in their sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeRows {
    /// Slot of each row; `IDLE_SLOT` of a row that computes nothing.
    pub slots: Tensor,
    /// Position of each row's token in its sequence.
    pub positions: Tensor,
    /// Positions that there are.
    pub seq_len: u32,
    /// True if no two rows share a slot: each is the next token of its sequence.
    pub is_step: bool,
}

impl DecodeRows {
    /// The first `count` rows.
    pub fn first(self, count: u64) -> Self {
        Self { slots: self.slots.slice(0, count), positions: self.positions.slice(0, count), ..self }
    }
}

/// Inputs of the draws of rows, and the tokens drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowState {
    /// Number of each row's sequence, two words, the lower first.
    pub sequences: Tensor,
    /// Tokens that each row's sequence has at most.
    pub ends: Tensor,
    /// Tokens that end a sequence.
    pub stops: Tensor,
    /// Tokens of the sequences, `[slots, seq_len]`, from the first that was drawn on.
    pub tokens: Tensor,
    /// Their log-probabilities, nats.
    pub log_probs: Tensor,
    /// Log-sum-exp of the logits that they were drawn from, nats.
    pub lses: Tensor,
}

/// Elements of logits by the place of their token, `[slots, seq_len]` each: those that were compared with others, and
/// those of them whose bits differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BitCounts<T> {
    pub compared: T,
    pub differing: T,
}

/// Declares the pool of a model: a cache for each layer.
pub(crate) fn pool(
    b: &mut Builder,
    config: &ModelConfig,
    Slots { count: slots, seq_len }: Slots,
    (x, lifetime): (Dtype, Lifetime),
) -> Vec<LayerCache> {
    let mut cache = |(index, layer)| {
        let mut part = |name, category, dtype, shape: [u32; 3]| {
            let elems = shape.into_iter().map(u64::from).product::<u64>() * u64::from(slots);
            b.lasting(format!("cache.layers.{index}.{name}"), category, dtype, elems, lifetime)
        };
        let Some(heads) = config.heads_of(layer) else {
            let shape = [config.kv_heads, seq_len, config.head_dim];
            let [keys, values] = ["keys", "values"].map(|name| part(name, category::KEYS_AND_VALUES, x, shape));
            return LayerCache::Attention(KeyValueCache { keys, values, slots, seq_len });
        };
        let mut part = |name, dtype, shape| part(name, category::STATES, dtype, shape);
        LayerCache::DeltaRule(DeltaRuleCache {
            history: part("history", x, [1, TAPS - 1, heads.channels()]),
            states: part("states", Dtype::F32, [heads.values, HEAD, HEAD]),
            rounded: part("rounded", x, [heads.values, HEAD, HEAD]),
            keys: part("keys", x, [heads.keys, CHUNK, HEAD]),
            scale: part("scale", Dtype::F32, [1, heads.keys, CHUNK]),
            decay: part("decay", Dtype::F32, [1, heads.values, CHUNK]),
            inverse: part("inverse", Dtype::F32, [heads.values, CHUNK, CHUNK]),
            change: part("change", x, [heads.values, CHUNK, HEAD]),
            slots,
        })
    };
    config.layers.iter().enumerate().map(&mut cache).collect()
}
