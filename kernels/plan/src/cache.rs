//! The pool of keys and values, the rows that decoding computes, and what becomes of them.

use precast_kernels::Dtype;

use crate::category;
use crate::config::ModelConfig;
use precast_core::plan::{Builder, Lifetime, Tensor};

/// Sequences that are written at a time, and tokens of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    pub count: u32,
    pub seq_len: u32,
}

/// Keys and values of a layer: `[slots, kv_heads, seq_len, head_dim]` each, in the dtype of activations. A slot holds
/// one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCache {
    pub keys: Tensor,
    pub values: Tensor,
    pub slots: u32,
    /// Tokens that a slot has room for.
    pub seq_len: u32,
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
    let elems = u64::from(slots) * u64::from(config.kv_heads) * u64::from(seq_len) * u64::from(config.head_dim);
    let caches = (0..config.depth()).map(|layer| {
        let mut part =
            |name| b.lasting(format!("cache.layers.{layer}.{name}"), category::KEYS_AND_VALUES, x, elems, lifetime);
        LayerCache { keys: part("keys"), values: part("values"), slots, seq_len }
    });
    caches.collect()
}
