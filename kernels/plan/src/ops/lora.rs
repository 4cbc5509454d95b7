//! Adapters of a linear layer: what they add to its output, and the gradients of their matrices and of their input.

use precast_kernels::abi::{
    column_sum_finish_params, lora_dgrad_a_params, lora_dgrad_b_params, lora_fwd_a_params, lora_fwd_b_params,
    lora_part, lora_wgrad_params,
};
use precast_kernels::column_sum::ColumnSumFinish;
use precast_kernels::lora::{LoraDgradA, LoraDgradB, LoraFwdA, LoraFwdB, LoraWgrad};

use super::Ops;
use crate::buffer::Tensor;
use crate::weights::{Linear, LinearAdapter, Weight};

impl LinearAdapter {
    /// The parts as parameter blocks have them.
    fn parts(&self) -> (u32, [lora_part; 3]) {
        let mut row = 0;
        let mut all = [lora_part::default(); 3];
        for (all, part) in all.iter_mut().zip(&self.parts) {
            *all = lora_part { scale: part.scale, start: part.start, width: part.width, row };
            row += part.width;
        }
        (self.parts.len() as u32, all)
    }
}

fn adapter_of(linear: &Linear) -> &LinearAdapter {
    linear.adapter.as_ref().expect("a layer with adapters")
}

impl Ops<'_> {
    /// `scale A x` of all adapted parts side by side: `[tokens, parts * rank]`.
    pub fn adapter_ranks(&mut self, name: &str, x: Tensor, linear: &Linear) -> Tensor {
        let adapter = adapter_of(linear);
        let name = format!("{name}.lora_a");
        let t = self.rows(&name, adapter.columns());
        let (parts, part) = adapter.parts();
        let params = lora_fwd_a_params {
            x: x.address(),
            a: adapter.a.tensor.address(),
            t: t.address(),
            m: self.tokens(),
            k: linear.k,
            rank: adapter.rank,
            parts,
            part,
        };
        self.launch(&name, LoraFwdA { x: self.x }, &params);
        t
    }

    /// Adds `B t` to the output of the layer, in place.
    pub fn adapter_add(&mut self, name: &str, t: Tensor, y: Tensor, linear: &Linear) {
        let adapter = adapter_of(linear);
        let (parts, part) = adapter.parts();
        let params = lora_fwd_b_params {
            t: t.address(),
            b: adapter.b.tensor.address(),
            y: y.address(),
            m: self.tokens(),
            n: linear.n,
            rank: adapter.rank,
            parts,
            part,
        };
        self.launch(&format!("{name}.lora_b"), LoraFwdB { x: self.x }, &params);
    }

    /// Gradients of both matrices, and what that of the input follows from: the gradient of `A x`.
    pub fn adapter_backward(&mut self, name: &str, dy: Tensor, (x, t): (Tensor, Tensor), linear: &Linear) -> Tensor {
        let adapter = adapter_of(linear);
        let (parts, part) = adapter.parts();
        let columns = adapter.columns();
        let dt = self.rows(&format!("{name}.lora_dt"), columns);
        let params = lora_dgrad_b_params {
            dy: dy.address(),
            b: adapter.b.tensor.address(),
            dt: dt.address(),
            m: self.tokens(),
            n: linear.n,
            rank: adapter.rank,
            parts,
            part,
        };
        self.launch(&format!("{name}.lora_b.dgrad"), LoraDgradB { x: self.x }, &params);
        let of_b = lora_wgrad_params {
            dy: dy.address(),
            x: t.address(),
            m: self.tokens(),
            n: linear.n,
            columns: adapter.rank,
            parts,
            part,
            ..Default::default()
        };
        self.adapter_gradient(&format!("{name}.lora_b"), of_b, linear, &adapter.b);
        let mut of_a = lora_wgrad_params {
            dy: dt.address(),
            x: x.address(),
            m: self.tokens(),
            n: columns,
            columns: linear.k,
            parts: 1,
            ..Default::default()
        };
        of_a.part[0].width = columns;
        self.adapter_gradient(&format!("{name}.lora_a"), of_a, linear, &adapter.a);
        dt
    }

    /// Adds `A^T dt` to the gradient of the layer's input, in place.
    pub fn adapter_input_gradient(&mut self, name: &str, dt: Tensor, dx: Tensor, linear: &Linear) {
        let adapter = adapter_of(linear);
        let params = lora_dgrad_a_params {
            dt: dt.address(),
            a: adapter.a.tensor.address(),
            dx: dx.address(),
            m: self.tokens(),
            k: linear.k,
            rank: adapter.columns(),
            reserved: 0,
        };
        self.launch(&format!("{name}.lora_a.dgrad"), LoraDgradA { x: self.x }, &params);
    }

    /// The gradient of a matrix: where the sums over ranges of tokens are taken apart, they are added up in their order.
    fn adapter_gradient(&mut self, name: &str, mut params: lora_wgrad_params, linear: &Linear, weight: &Weight) {
        let name = format!("{name}.wgrad");
        let (micro, grad) = (self.gradients().micro.address(), Self::gradient_of(weight));
        params.splits = LoraWgrad::ranges(&params, u64::from(linear.n) * u64::from(linear.k));
        if params.splits == 1 {
            (params.micro, params.dw) = (micro, grad.address());
            return self.launch(&name, LoraWgrad { x: self.x }, &params);
        }
        let partial_name = format!("{name}_partial");
        let partial = self.statistics(&partial_name, u64::from(params.splits) * grad.elems);
        params.partial = partial.address();
        self.launch(&partial_name, LoraWgrad { x: self.x }, &params);
        let params = column_sum_finish_params {
            partial: partial.address(),
            micro,
            grad: grad.address(),
            rows: params.splits,
            n: grad.elems as u32,
        };
        self.launch(&name, ColumnSumFinish {}, &params);
    }
}
