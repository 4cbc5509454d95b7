//! Activations on their way into a GEMM.

use precast_kernels::{Dtype, Out};

use super::Ops;
use crate::weights::Int8Rows;
use precast_core::plan::Tensor;

/// Activations `[tokens, width]` in every format that is read.
#[derive(Clone, Copy)]
pub(crate) struct ActivationRows {
    /// In the dtype of activations, if read so.
    dense: Option<Tensor>,
    /// In int8, if their producer writes that.
    pub int8: Option<Int8Rows>,
}

impl ActivationRows {
    /// # Panics
    /// If they have not been written.
    pub fn dense(self) -> Tensor {
        self.dense.expect("activations that are read in their own dtype")
    }

    /// Returns the dense tensor, and the int8 values and scales.
    pub fn tensors(self) -> [Option<Tensor>; 3] {
        let Self { dense, int8 } = self;
        [dense, int8.map(|int8| int8.values), int8.map(|int8| int8.scales)]
    }
}

impl From<Tensor> for ActivationRows {
    fn from(dense: Tensor) -> Self {
        Self { dense: Some(dense), int8: None }
    }
}

impl Ops<'_> {
    /// Declares transient buffers of tokens x width activations in these formats.
    pub(super) fn rows_in(&mut self, out: Out, name: &str, width: u32) -> ActivationRows {
        let dense = out.is_dense().then(|| self.rows(name, width));
        ActivationRows { dense, int8: out.is_int8().then(|| self.int8_rows(name, width)) }
    }

    /// Declares transient buffers of int8 rows.
    pub(super) fn int8_rows(&mut self, name: &str, width: u32) -> Int8Rows {
        let elems = u64::from(self.tokens) * u64::from(width);
        let values = self.b.transient(self.name(&format!("{name}.int8")), Dtype::I8, elems);
        Int8Rows { values, scales: self.statistics(&format!("{name}.scales"), self.tokens.into()) }
    }
}
