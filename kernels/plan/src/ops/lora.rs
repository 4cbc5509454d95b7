//! Adapters of a linear layer: forward, and the gradients of their matrices and of their input.

use precast_kernels::abi::{
    ColumnSumFinishArgs, LORA_PARTS, LoraDgradAArgs, LoraDgradBArgs, LoraFwdAArgs, LoraFwdBArgs, LoraWgradArgs,
    lora_part,
};
use precast_kernels::column_sum::ColumnSumFinish;
use precast_kernels::lora::{LoraDgradA, LoraDgradB, LoraFwdA, LoraFwdB, LoraWgrad};

use super::Ops;
use crate::weights::{Linear, LinearAdapter, Weight};
use precast_core::plan::Tensor;

impl LinearAdapter {
    /// Returns the parts for parameter blocks.
    fn parts(&self) -> (u32, [lora_part; LORA_PARTS as usize]) {
        let mut row = 0;
        let mut all = [lora_part::default(); LORA_PARTS as usize];
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
    /// Lowers `scale A x` of all adapted parts side by side: `[tokens, parts * rank]`.
    pub fn adapter_ranks(&mut self, name: &str, x: Tensor, linear: &Linear) -> Tensor {
        let adapter = adapter_of(linear);
        let name = format!("{name}.lora_a");
        let t = self.rows(&name, adapter.columns());
        let (parts, part) = adapter.parts();
        let args =
            LoraFwdAArgs { x, a: adapter.a.tensor, t, m: self.tokens, k: linear.k, rank: adapter.rank, parts, part };
        self.launch(&name, LoraFwdA { x: self.x }, args);
        t
    }

    /// Adds `B t` to the output of the layer, in place.
    pub fn adapter_add(&mut self, name: &str, t: Tensor, y: Tensor, linear: &Linear) {
        let adapter = adapter_of(linear);
        let (parts, part) = adapter.parts();
        let args =
            LoraFwdBArgs { t, b: adapter.b.tensor, y, m: self.tokens, n: linear.n, rank: adapter.rank, parts, part };
        self.launch(&format!("{name}.lora_b"), LoraFwdB { x: self.x }, args);
    }

    /// Lowers the gradients of both matrices; returns the gradient of `A x`.
    pub fn adapter_backward(&mut self, name: &str, dy: Tensor, (x, t): (Tensor, Tensor), linear: &Linear) -> Tensor {
        let adapter = adapter_of(linear);
        let (parts, part) = adapter.parts();
        let columns = adapter.columns();
        let dt = self.rows(&format!("{name}.lora_dt"), columns);
        let args = LoraDgradBArgs {
            dy,
            b: adapter.b.tensor,
            dt,
            m: self.tokens,
            n: linear.n,
            rank: adapter.rank,
            parts,
            part,
        };
        self.launch(&format!("{name}.lora_b.dgrad"), LoraDgradB { x: self.x }, args);
        let of_b = LoraWgradArgs {
            dy,
            x: t,
            m: self.tokens,
            n: linear.n,
            columns: adapter.rank,
            splits: 0,
            parts,
            part,
            dw: None,
            partial: None,
            micro: None,
        };
        self.adapter_gradient(&format!("{name}.lora_b"), of_b, linear, &adapter.b);
        let mut whole = [lora_part::default(); LORA_PARTS as usize];
        whole[0].width = columns;
        let of_a = LoraWgradArgs { dy: dt, x, n: columns, columns: linear.k, parts: 1, part: whole, ..of_b };
        self.adapter_gradient(&format!("{name}.lora_a"), of_a, linear, &adapter.a);
        dt
    }

    /// Adds `A^T dt` to the gradient of the layer's input, in place.
    pub fn adapter_input_gradient(&mut self, name: &str, dt: Tensor, dx: Tensor, linear: &Linear) {
        let adapter = adapter_of(linear);
        let args = LoraDgradAArgs { dt, a: adapter.a.tensor, dx, m: self.tokens, k: linear.k, rank: adapter.columns() };
        self.launch(&format!("{name}.lora_a.dgrad"), LoraDgradA { x: self.x }, args);
    }

    /// Lowers the gradient of a matrix; sums over ranges of tokens are added in order.
    fn adapter_gradient(&mut self, name: &str, of: LoraWgradArgs<Tensor>, linear: &Linear, weight: &Weight) {
        let name = format!("{name}.wgrad");
        let (micro, grad) = (self.gradients().micro, Self::gradient_of(weight));
        let splits = LoraWgrad::ranges(&of.into(), u64::from(linear.n) * u64::from(linear.k));
        if splits == 1 {
            let args = LoraWgradArgs { splits, micro: Some(micro), dw: Some(grad), ..of };
            return self.launch(&name, LoraWgrad { x: self.x }, args);
        }
        let partial_name = format!("{name}_partial");
        let partial = self.statistics(&partial_name, u64::from(splits) * grad.elems);
        let args = LoraWgradArgs { splits, partial: Some(partial), ..of };
        self.launch(&partial_name, LoraWgrad { x: self.x }, args);
        let args = ColumnSumFinishArgs { partial, micro, grad, rows: splits, n: grad.elems as u32 };
        self.launch(&name, ColumnSumFinish {}, args);
    }
}
