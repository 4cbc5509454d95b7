//! Fills and casts flat buffers.

use precast_kernels::abi::{CastArgs, FillArgs};
use precast_kernels::{Dtype, cast::Cast, fill::Fill};

use super::Ops;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Fills `y` with zeros, in every micro-batch.
    pub fn clear(&mut self, name: &str, y: Tensor) {
        self.fill(name, y, 0.0);
    }

    /// Fills `y`, f32, with a value, in every micro-batch.
    pub fn fill(&mut self, name: &str, y: Tensor, value: f32) {
        let args = FillArgs { micro: None, y, n: y.elems, value };
        self.launch(name, Fill { first: false }, args);
    }

    /// Returns x, f32, in the dtype of activations: itself, if that is f32.
    pub fn in_dtype(&mut self, name: &str, x: Tensor) -> Tensor {
        if self.x == Dtype::F32 {
            return x;
        }
        let y = self.b.transient(self.name(name), self.x, x.elems);
        self.cast(name, x, y);
        y
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
