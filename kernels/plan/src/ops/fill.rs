//! Fills and casts flat buffers.

use precast_kernels::abi::{CastArgs, FillArgs};
use precast_kernels::{cast::Cast, fill::Fill};

use super::Ops;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Fills `y` with zeros, in every micro-batch.
    pub fn clear(&mut self, name: &str, y: Tensor) {
        let args = FillArgs { micro: None, y, n: y.elems, value: 0.0 };
        self.launch(name, Fill { first: false }, args);
    }

    /// Casts x to the dtype of y, rounded to nearest even.
    ///
    /// # Panics
    /// If either is not dense.
    pub fn cast(&mut self, name: &str, x: Tensor, y: Tensor) {
        let [from, to] = [x, y].map(|tensor| tensor.format.dtype().expect("a cast is between dtypes"));
        let args = CastArgs { x, y, n: x.elems };
        self.launch(name, Cast { from, to }, args);
    }
}
