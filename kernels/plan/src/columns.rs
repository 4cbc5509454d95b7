//! Columns of logits: the tokens of a vocabulary, and masked ones behind them.

use precast_core::plan::Tensor;

/// Columns of logits are a multiple of this: each row then begins at a cache line, as the tiles that tensor cores read
/// and write do. Rows of the head are zero where no token is.
const MULTIPLE: u32 = 64;

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
