//! SwiGLU: `silu(gate) up`.

use precast_kernels::abi::{int8_gated_bwd_params, int8_gated_params, swiglu_bwd_params, swiglu_fwd_params};
use precast_kernels::int8::{Int8Gated, Int8GatedBwd};
use precast_kernels::swiglu::{SwigluBwd, SwigluFwd};

use super::{Ops, Rows};
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

    /// The same for a product of 8 bits, and in the dtype of activations if they are `kept`.
    pub fn swiglu_quantised(&mut self, name: &str, gate_up: Tensor, kept: bool) -> Rows {
        let (tokens, n) = (self.tokens(), self.gated_width(gate_up));
        let dense = kept.then(|| self.rows(name, n));
        let int8 = self.quantised_rows(name, n);
        let params = int8_gated_params {
            gate_up: gate_up.address(),
            y: dense.map_or(0, Tensor::address),
            q: int8.values.address(),
            scale: int8.scales.address(),
            tokens,
            reserved: 0,
        };
        self.launch(name, Int8Gated { kept, n }, &params);
        Rows { dense, int8: Some(int8) }
    }

    /// Gradient of gate and up; with `int8` for a product of 8 bits, too, where one launch gives both.
    pub fn swiglu_backward(&mut self, name: &str, dy: Tensor, gate_up: Tensor, int8: bool) -> Rows {
        let (tokens, n) = (self.tokens(), self.gated_width(gate_up));
        let dgate_up = self.rows(&format!("{name}.dgate_up"), 2 * n);
        if int8 && Int8GatedBwd::fits(n) {
            let int8 = self.quantised_rows(&format!("{name}.dgate_up"), 2 * n);
            let params = int8_gated_bwd_params {
                gate_up: gate_up.address(),
                dy: dy.address(),
                dgate_up: dgate_up.address(),
                q: int8.values.address(),
                scale: int8.scales.address(),
                tokens,
                reserved: 0,
            };
            self.launch(&format!("{name}.bwd"), Int8GatedBwd { n }, &params);
            return Rows { dense: Some(dgate_up), int8: Some(int8) };
        }
        let params =
            swiglu_bwd_params { gate_up: gate_up.address(), dy: dy.address(), dgate_up: dgate_up.address(), tokens, n };
        self.launch(&format!("{name}.bwd"), SwigluBwd { x: self.x }, &params);
        dgate_up.into()
    }

    fn gated_width(&self, gate_up: Tensor) -> u32 {
        (gate_up.elems / u64::from(2 * self.tokens())) as u32
    }
}
