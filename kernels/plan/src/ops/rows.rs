//! Activations on their way into a product.

use crate::buffer::Tensor;
use crate::weights::Quantised;

/// Activations `[tokens, width]` that a product reads.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// In the dtype of activations; none where nobody reads them so.
    pub dense: Option<Tensor>,
    /// As a product of 8 bits reads them, if what made them gave that.
    pub int8: Option<Quantised>,
}

impl Rows {
    /// # Panics
    /// If they have not been written.
    pub fn dense(self) -> Tensor {
        self.dense.expect("activations that are read in their own dtype")
    }
}

impl From<Tensor> for Rows {
    fn from(dense: Tensor) -> Self {
        Self { dense: Some(dense), int8: None }
    }
}
