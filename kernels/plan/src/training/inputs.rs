//! The inputs that the host sends before each micro-batch.

use crate::category;
use precast_kernels::{Dtype, abi::micro_scalars};

use crate::sequences::{Sequences, Shape};
use precast_core::plan::{Builder, Tensor};

/// Words of a scalar block, padded to a cache line.
const BLOCK_WORDS: u64 = 16;

/// One buffer of words that the host sends before each micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroInputs {
    /// The whole buffer, sent in one copy.
    pub all: Tensor,
    pub ids: Tensor,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
    /// Token ids, ascending.
    pub sorted_ids: Tensor,
    /// Original position of each sorted id.
    pub sorted_positions: Tensor,
    /// Places of the sequences.
    pub sequences: Sequences,
    /// `micro_scalars`.
    pub micro: Tensor,
    /// Alpha and beta of weight gradients: 1, and 0 in the first micro-batch of a step or 1 in later ones, f32.
    pub factors: Tensor,
}

impl MicroInputs {
    pub(super) fn new(b: &mut Builder, shape: Shape) -> Self {
        let tokens = u64::from(shape.tokens);
        let (column, of_sequences) = (tokens.next_multiple_of(BLOCK_WORDS), Sequences::words_of(shape));
        let scalars = 4 * column + of_sequences.next_multiple_of(BLOCK_WORDS);
        let all = b.persistent("inputs", category::INPUTS, Dtype::U32, scalars + BLOCK_WORDS);
        let part = |index: u64| all.slice(index * column, tokens);
        Self {
            all,
            ids: part(0),
            targets: part(1),
            sorted_ids: part(2),
            sorted_positions: part(3),
            sequences: Sequences::within(all.slice(4 * column, of_sequences), shape),
            micro: all.slice(scalars, size_of::<micro_scalars>() as u64 / 4),
            factors: all.slice(scalars + BLOCK_WORDS / 2, 2),
        }
    }
}
