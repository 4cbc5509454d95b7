//! The embedding of tokens.

use precast_kernels::abi::{embedding_bwd_params, embedding_fwd_params, fill_params};
use precast_kernels::embedding::{EmbeddingBwd, EmbeddingFwd};
use precast_kernels::fill::Fill;

use super::Ops;
use crate::buffer::Tensor;
use crate::weights::{Linear, Matrix, Weight};

/// Token ids, ascending, and where each came from: the gradient's order of addition.
#[derive(Clone, Copy)]
pub(crate) struct Sorted {
    pub ids: Tensor,
    pub positions: Tensor,
}

impl Ops<'_> {
    /// A row of the table [vocab, h] for each token.
    pub fn embedding(&mut self, name: &str, ids: Tensor, table: &Weight, h: u32) -> Tensor {
        let y = self.rows(name, h);
        let params = embedding_fwd_params {
            ids: ids.address(),
            table: table.tensor.address(),
            y: y.address(),
            tokens: self.tokens(),
            vocab: (table.tensor.elems / u64::from(h)) as u32,
        };
        self.launch(name, EmbeddingFwd { h, w: table.tensor.format, x: self.x }, &params);
        y
    }

    /// Adds the gradient to the rows of the tokens that occur. The gradient of a table that is the head too has been
    /// overwritten whole there; another is cleared first.
    pub fn embedding_backward(&mut self, name: &str, dy: Tensor, sorted: Sorted, table: &Weight, head: &Linear) {
        let (dtable, h) = (Self::gradient_of(table), head.k);
        if head.weight != Matrix::Dense(*table) {
            let micro = self.gradients().micro.address();
            let params = fill_params { micro, y: dtable.address(), n: dtable.elems, value: 0.0, reserved: 0 };
            self.launch(&format!("{name}.clear"), Fill { first: true }, &params);
        }
        let params = embedding_bwd_params {
            sorted_ids: sorted.ids.address(),
            sorted_positions: sorted.positions.address(),
            dy: dy.address(),
            dtable: dtable.address(),
            tokens: self.tokens(),
            vocab: (dtable.elems / u64::from(h)) as u32,
        };
        self.launch(&format!("{name}.bwd"), EmbeddingBwd { h, x: self.x }, &params);
    }
}
