//! Columns of logits: the tokens of a vocabulary, and masked ones behind them.

use precast_core::plan::Tensor;

/// Columns of logits are a multiple of this: rows of them are then whole vectors in any dtype, as tensor cores read
/// and write them. Rows of the head are zero where no token is.
const MULTIPLE: u32 = 8;

/// Returns the columns of the logits of a vocabulary.
pub(crate) fn logit_columns(vocab: u32) -> u32 {
    vocab.next_multiple_of(MULTIPLE)
}

/// Columns of logits in a plan.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub count: u32,
    /// Added to each row of logits, `[count]` in their dtype; none if all columns are tokens.
    pub mask: Option<Tensor>,
}
