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

/// What the backward pass has of the forward pass; the rest it recomputes.
pub(crate) struct Saved {
    /// Residual stream into the block.
    input: Tensor,
    kept: Option<Kept>,
}

/// What is between a block's input and its last product.
struct Kept {
    attention: Attention,
    gate_up: Tensor,
    cheap: Option<Cheap>,
}

/// What attention makes of the residual stream.
struct Attention {
    /// Queries and keys turned, and normalised before if the family does that.
    qkv: Tensor,
    /// Queries and keys before that, if they were normalised and the backward pass comes.
    raw: Option<Tensor>,
    attended: Attended,
    /// Residual stream between attention and MLP.
    middle: Tensor,
}

/// What takes one pass over memory to recompute.
#[derive(Clone, Copy)]
struct Cheap {
    input_norm: Normed,
    post_norm: Normed,
    gated: Tensor,
}

impl Block<'_> {
    /// The residual stream behind the block.
    pub fn forward(&self, ops: &mut Ops<'_>, input: Tensor) -> Tensor {
        let w = self.weights;
        let (_, Attention { middle, .. }, post_norm) = self.attention(ops, input, false);
        let gated = ops.linear_swiglu("gate_up", post_norm.y, &w.gate_up);
        ops.linear_add("down", gated, &w.down, middle)
    }

    /// The same in a model that trains: what the backward pass needs is kept, as far as `recompute` says.
    pub fn forward_saving(&self, ops: &mut Ops<'_>, input: Tensor, recompute: Recompute) -> (Tensor, Saved) {
        let (kept, cheap) = self.inner(ops, input);
        let output = ops.linear_add("down", cheap.gated, &self.weights.down, kept.attention.middle);
        let kept = match recompute {
            Recompute::None => Some(Kept { cheap: Some(cheap), ..kept }),
            Recompute::Norms => Some(kept),
            Recompute::Blocks => None,
        };
        (output, Saved { input, kept })
    }

    /// Everything before the last product.
    fn inner(&self, ops: &mut Ops<'_>, input: Tensor) -> (Kept, Cheap) {
        let (input_norm, attention, post_norm) = self.attention(ops, input, true);
        let gate_up = ops.linear("gate_up", post_norm.y, &self.weights.gate_up);
        let gated = ops.swiglu("swiglu", gate_up);
        (Kept { attention, gate_up, cheap: None }, Cheap { input_norm, post_norm, gated })
    }

    /// Attention, between the norm before it and the norm of the residual stream behind it. With `saving` what only the
    /// backward pass needs is written too.
    fn attention(&self, ops: &mut Ops<'_>, input: Tensor, saving: bool) -> (Normed, Attention, Normed) {
        let w = self.weights;
        let input_norm = ops.norm("input_norm", input, &w.input_norm);
        let qkv = ops.linear("qkv", input_norm.y, &w.qkv);
        let raw = match &w.qk_norm {
            Some(norm) => ops.qk_norm_rope("qk_norm", qkv, self.heads, self.rope, norm, saving),
            None => {
                ops.rope("rope", qkv, self.heads, self.rope);
                None
            }
        };
        let attended = ops.attention("attention", qkv, self.heads);
        // The o projection sums over few elements, so its store is what it waits for: the residual is added
        // where the row is read anyway, in the norm. The down projection sums over many: there it is free.
        let branch = ops.linear("o", attended.o, &w.o);
        let (middle, post_norm) = ops.add_norm("post_norm", input, branch, &w.post_norm);
        (input_norm, Attention { qkv, raw, attended, middle }, post_norm)
    }

    /// From the gradient of the block's output to that of its input.
    pub fn backward(&self, ops: &mut Ops<'_>, Saved { input, kept }: Saved, doutput: Tensor) -> Tensor {
        let w = self.weights;
        let Kept { attention: Attention { qkv, raw, attended, middle }, gate_up, cheap } = kept.unwrap_or_else(|| {
            let (kept, cheap) = ops.recompute(|ops| self.inner(ops, input));
            Kept { cheap: Some(cheap), ..kept }
        });
        // Where they are not kept, each is recomputed just before it is read.
        let (input_norm, post_norm) = (cheap.map(|cheap| cheap.input_norm), cheap.map(|cheap| cheap.post_norm));
        let gated = cheap.map(|cheap| cheap.gated);

        let gated = gated.unwrap_or_else(|| ops.recompute(|ops| ops.swiglu("swiglu", gate_up)));
        let dgated = ops.linear_backward("down", doutput, gated, &w.down);
        let dgate_up = ops.swiglu_backward("swiglu", dgated, gate_up);
        let post_norm = post_norm.unwrap_or_else(|| ops.recompute(|ops| ops.norm("post_norm", middle, &w.post_norm)));
        let dnormed = ops.linear_backward("gate_up", dgate_up, post_norm.y, &w.gate_up);
        let dmiddle = ops.norm_backward("post_norm", dnormed, (middle, post_norm), &w.post_norm, Some(doutput));

        let d_o = ops.linear_backward("o", dmiddle, attended.o, &w.o);
        let dqkv = ops.attention_backward("attention", d_o, qkv, attended, self.heads);
        match w.qk_norm.as_ref().zip(raw) {
            Some((norm, raw)) => ops.qk_norm_rope_backward("qk_norm", dqkv, raw, self.heads, self.rope, norm),
            None => ops.rope_backward("attention.rope", dqkv, self.heads, self.rope),
        }
        let input_norm =
            input_norm.unwrap_or_else(|| ops.recompute(|ops| ops.norm("input_norm", input, &w.input_norm)));
        let dnormed = ops.linear_backward("qkv", dqkv, input_norm.y, &w.qkv);
        ops.norm_backward("input_norm", dnormed, (input, input_norm), &w.input_norm, Some(dmiddle))
    }
}
