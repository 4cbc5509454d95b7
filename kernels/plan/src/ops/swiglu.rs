//! SwiGLU, `silu(gate) up`, and GeGLU.

use precast_kernels::abi::{SwigluBwdArgs, SwigluFwdArgs};
use precast_kernels::swiglu::{SwigluBwd, SwigluFwd};
use precast_kernels::{Gate, Out};

use super::{ActivationRows, Ops};
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Lowers `activation(gate) up`: tokens x n from tokens x 2n.
    pub fn swiglu(&mut self, name: &str, gate: Gate, gate_up: Tensor, out: Out) -> ActivationRows {
        let (tokens, n) = (self.tokens, self.gated_width(gate_up));
        let rows = self.rows_in(out, name, n);
        let [y, q, scale] = rows.tensors();
        let args = SwigluFwdArgs { gate_up, y, tokens, n, q, scale };
        self.launch(name, SwigluFwd { gate, n: out.is_int8().then_some(n), out, x: self.x }, args);
        rows
    }

    /// Lowers the gradient of gate and up. `out`: the requested formats, of which one launch may not give all.
    pub fn swiglu_backward(&mut self, name: &str, gate: Gate, dy: Tensor, gate_up: Tensor, out: Out) -> ActivationRows {
        let (tokens, n) = (self.tokens, self.gated_width(gate_up));
        let out = SwigluBwd::writes(n, out);
        let rows = self.rows_in(out, &format!("{name}.dgate_up"), 2 * n);
        let (dgate_up, [_, q, scale]) = (rows.dense(), rows.tensors());
        let args = SwigluBwdArgs { gate_up, dy, dgate_up, tokens, n, q, scale };
        let key = SwigluBwd { gate, n: out.is_int8().then_some(n), out, x: self.x };
        self.launch(&format!("{name}.bwd"), key, args);
        rows
    }

    fn gated_width(&self, gate_up: Tensor) -> u32 {
        (gate_up.elems / u64::from(2 * self.tokens)) as u32
    }
}
