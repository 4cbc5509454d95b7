//! SwiGLU: `silu(gate) up`.

use precast_kernels::abi::{swiglu_bwd_params, swiglu_fwd_params};
use precast_kernels::swiglu::{SwigluBwd, SwigluFwd};

use super::Ops;
use crate::buffer::Tensor;

impl Ops<'_> {
    /// Gates the up projection: tokens x n of tokens x 2n.
    pub fn swiglu(&mut self, name: &str, gate_up: Tensor) -> Tensor {
        let (tokens, n) = (self.tokens(), self.gated_width(gate_up));
        let y = self.rows(name, n);
        let params = swiglu_fwd_params { gate_up: gate_up.address(), y: y.address(), tokens, n };
        self.launch(name, SwigluFwd { x: self.x }, &params);
        y
    }

    /// Gradient of gate and up.
    pub fn swiglu_backward(&mut self, name: &str, dy: Tensor, gate_up: Tensor) -> Tensor {
        let (tokens, n) = (self.tokens(), self.gated_width(gate_up));
        let dgate_up = self.rows(&format!("{name}.dgate_up"), 2 * n);
        let params =
            swiglu_bwd_params { gate_up: gate_up.address(), dy: dy.address(), dgate_up: dgate_up.address(), tokens, n };
        self.launch(&format!("{name}.bwd"), SwigluBwd { x: self.x }, &params);
        dgate_up
    }

    fn gated_width(&self, gate_up: Tensor) -> u32 {
        (gate_up.elems / u64::from(2 * self.tokens())) as u32
    }
}
