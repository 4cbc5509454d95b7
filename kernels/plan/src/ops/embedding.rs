//! The embedding of tokens.

use precast_kernels::abi::{EmbeddingBwdArgs, EmbeddingFwdArgs, FillArgs};
use precast_kernels::embedding::{EmbeddingBwd, EmbeddingFwd};
use precast_kernels::fill::Fill;

use super::Ops;
use crate::weights::{Matrix, Weight, Weights};
use precast_core::plan::Tensor;

/// Token ids, ascending, with their original positions: the gradient's order of addition.
#[derive(Clone, Copy)]
pub(crate) struct Sorted {
    pub ids: Tensor,
    pub positions: Tensor,
}

impl Ops<'_> {
    /// Gathers a row of the table [vocab, h] per token.
    pub fn embedding(&mut self, name: &str, ids: Tensor, table: &Weight, h: u32) -> Tensor {
        let y = self.rows(name, h);
        self.embed(name, ids, table, y);
        y
    }

    /// Lowers the rows of a table into `y`, `[tokens, hidden]`.
    pub fn embed(&mut self, name: &str, ids: Tensor, table: &Weight, y: Tensor) {
        let h = (y.elems / u64::from(self.tokens)) as u32;
        let args = EmbeddingFwdArgs {
            ids,
            table: table.tensor,
            y,
            tokens: self.tokens,
            vocab: (table.tensor.elems / u64::from(h)) as u32,
        };
        self.launch(name, EmbeddingFwd { h, w: table.tensor.format, x: self.x }, args);
    }

    /// Adds the gradient to the rows of the tokens that occur, but for `padding`. The head has overwritten the whole
    /// gradient of a tied table; any other is cleared first.
    pub fn embedding_backward(
        &mut self,
        name: &str,
        dy: Tensor,
        sorted: Sorted,
        model: &Weights,
        padding: Option<u32>,
    ) {
        let (table, head) = (&model.embedding, &model.head);
        let (dtable, h) = (Self::gradient_of(table), head.k);
        if head.weight != Matrix::Dense(*table) {
            let micro = Some(self.gradients().micro);
            let args = FillArgs { micro, y: dtable, n: dtable.elems, value: 0.0 };
            self.launch(&format!("{name}.clear"), Fill { first: true }, args);
        }
        let args = EmbeddingBwdArgs {
            sorted_ids: sorted.ids,
            sorted_positions: sorted.positions,
            dy,
            dtable,
            tokens: self.tokens,
            vocab: (dtable.elems / u64::from(h)) as u32,
            padding: padding.unwrap_or(u32::MAX),
        };
        self.launch(&format!("{name}.bwd"), EmbeddingBwd { h, x: self.x }, args);
    }
}
