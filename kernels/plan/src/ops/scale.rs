//! Factors of values on their way through a model.

use precast_kernels::abi::ScaleArgs;
use precast_kernels::scale::Scale;

use super::Ops;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Lowers `factor x`, added to `residual` if given, into `y`, or a tensor like `x`.
    pub fn scale(&mut self, name: &str, x: Tensor, factor: f32, residual: Option<Tensor>, y: Option<Tensor>) -> Tensor {
        let y = y.unwrap_or_else(|| self.rows(name, (x.elems / u64::from(self.tokens)) as u32));
        let args = ScaleArgs { x, residual, y, n: x.elems, factor };
        self.launch(name, Scale { residual: residual.is_some(), x: self.x }, args);
        y
    }

    /// Lowers `factor x`; nothing where the factor is 1.
    pub fn scaled(&mut self, name: &str, x: Tensor, factor: f32) -> Tensor {
        if factor == 1.0 { x } else { self.scale(name, x, factor, None, None) }
    }
}
