//! A transformer block, forward and backward.

use crate::buffer::Tensor;
use crate::ops::{Attended, Heads, Normed, Ops};
use crate::recipe::Recompute;
use crate::rope::Rope;
use crate::weights::Layer;

/// A block: its weights, and what its attention is told.
pub(crate) struct Block<'a> {
    pub weights: &'a Layer,
    pub heads: Heads,
    pub rope: Rope,
}

/// What the backward pass has of the forward pass; the rest it computes again.
pub(crate) struct Saved {
    /// Residual stream into the block.
    input: Tensor,
    inner: Option<Inner>,
}

/// What is between the block's input and its last product.
struct Inner {
    /// None where it is cheap to compute again.
    input_norm: Option<Normed>,
    /// Queries and keys turned.
    qkv: Tensor,
    attended: Attended,
    /// Residual stream between attention and MLP.
    middle: Tensor,
    /// None where it is cheap to compute again.
    middle_norm: Option<Normed>,
    gate_up: Tensor,
    /// Output of SwiGLU; none where it is cheap to compute again.
    gated: Option<Tensor>,
}

impl Block<'_> {
    /// The residual stream behind the block.
    pub fn forward(&self, ops: &mut Ops<'_>, input: Tensor) -> Tensor {
        let w = self.weights;
        let (.., middle, middle_norm) = self.attention(ops, input);
        let gated = ops.linear_swiglu("gate_up", middle_norm.y, &w.gate_up);
        ops.linear_add("down", gated, &w.down, middle)
    }

    /// The same in a model that trains: what the backward pass needs is kept, as far as `recompute` says.
    pub fn forward_saving(&self, ops: &mut Ops<'_>, input: Tensor, recompute: Recompute) -> (Tensor, Saved) {
        let (inner, gated) = self.inner(ops, input);
        let output = ops.linear_add("down", gated, &self.weights.down, inner.middle);
        let inner = match recompute {
            Recompute::None => Some(inner),
            // Each takes one pass over memory.
            Recompute::Norms => Some(Inner { input_norm: None, middle_norm: None, gated: None, ..inner }),
            Recompute::Blocks => None,
        };
        (output, Saved { input, inner })
    }

    /// Everything before the last product, and what that reads.
    fn inner(&self, ops: &mut Ops<'_>, input: Tensor) -> (Inner, Tensor) {
        let (input_norm, qkv, attended, middle, middle_norm) = self.attention(ops, input);
        let gate_up = ops.linear("gate_up", middle_norm.y, &self.weights.gate_up);
        let gated = ops.swiglu("swiglu", gate_up);
        let (input_norm, middle_norm) = (Some(input_norm), Some(middle_norm));
        (Inner { input_norm, qkv, attended, middle, middle_norm, gate_up, gated: Some(gated) }, gated)
    }

    /// Attention, and the norm of the residual stream behind it.
    fn attention(&self, ops: &mut Ops<'_>, input: Tensor) -> (Normed, Tensor, Attended, Tensor, Normed) {
        let w = self.weights;
        let input_norm = ops.norm("input_norm", input, &w.input_norm);
        let qkv = ops.linear("qkv", input_norm.y, &w.qkv);
        ops.rope("rope", qkv, self.heads, self.rope);
        let attended = ops.attention("attention", qkv, self.heads);
        // The o projection sums over few elements, so its store is what it waits for: the residual is added
        // where the row is read anyway, in the norm. The down projection sums over many: there it is free.
        let branch = ops.linear("o", attended.o, &w.o);
        let (middle, middle_norm) = ops.add_norm("post_norm", input, branch, &w.post_norm);
        (input_norm, qkv, attended, middle, middle_norm)
    }

    /// From the gradient of the block's output to that of its input.
    pub fn backward(&self, ops: &mut Ops<'_>, Saved { input, inner }: Saved, doutput: Tensor) -> Tensor {
        let w = self.weights;
        let Inner { input_norm, qkv, attended, middle, middle_norm, gate_up, gated } =
            inner.unwrap_or_else(|| ops.recompute(|ops| self.inner(ops, input).0));

        let gated = gated.unwrap_or_else(|| ops.recompute(|ops| ops.swiglu("swiglu", gate_up)));
        let dgated = ops.linear_backward("down", doutput, gated, &w.down);
        let dgate_up = ops.swiglu_backward("swiglu", dgated, gate_up);
        let middle_norm =
            middle_norm.unwrap_or_else(|| ops.recompute(|ops| ops.norm("post_norm", middle, &w.post_norm)));
        let dnormed = ops.linear_backward("gate_up", dgate_up, middle_norm.y, &w.gate_up);
        let dmiddle = ops.norm_backward("post_norm", dnormed, (middle, middle_norm), &w.post_norm, Some(doutput));

        let d_o = ops.linear_backward("o", dmiddle, attended.o, &w.o);
        let dqkv = ops.attention_backward("attention", d_o, qkv, attended, self.heads);
        ops.rope_backward("attention.rope", dqkv, self.heads, self.rope);
        let input_norm =
            input_norm.unwrap_or_else(|| ops.recompute(|ops| ops.norm("input_norm", input, &w.input_norm)));
        let dnormed = ops.linear_backward("qkv", dqkv, input_norm.y, &w.qkv);
        ops.norm_backward("input_norm", dnormed, (input, input_norm), &w.input_norm, Some(dmiddle))
    }
}
