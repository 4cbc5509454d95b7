//! A request to check decoding.

use crate::device::frozen::Forward;

/// A request to check decoding under a model.
#[derive(Clone, Debug)]
pub struct DecodeCheck {
    pub forward: Forward,
    /// Sequences at a time.
    pub rows: u32,
    /// Tokens of the longest; if not given, as many as usual and the model takes.
    pub seq_len: Option<u32>,
    /// Decoded tokens to compare, at least.
    pub tokens: u64,
    /// Seed of the sequences.
    pub seed: u64,
}
