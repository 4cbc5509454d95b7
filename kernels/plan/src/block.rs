//! Lowers a transformer block, forward and backward.

use precast_kernels::Out;

use crate::cache::LayerCache;
use crate::ops::{ActivationRows, Attended, ForwardPass, Given, Heads, Normed, Ops, Projected};
use crate::recipe::Recompute;
use crate::rope::Rope;
use crate::weights::{Layer, Linear};
use precast_core::plan::Tensor;

/// A block: its weights and attention parameters.
pub(crate) struct TransformerBlock<'a> {
    pub weights: &'a Layer,
    pub heads: Heads,
    /// Tables that rotate its heads, if anything does.
    pub rope: Option<Rope>,
    /// Factor of what attention and MLP add to the residual stream.
    pub residual_scale: f32,
    /// Keys and values of the block's sequences, where it decodes.
    pub cache: Option<LayerCache>,
}

/// Trained part below a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    Embedding,
    /// Another block like it, whose last GEMM is the first to read the gradient.
    Block,
}

/// Activations that the forward pass saves for the backward pass, which recomputes the rest.
pub(crate) struct Saved {
    /// Residual stream into the block.
    input: Tensor,
    kept: Option<Kept>,
    /// Ranks of the down projection's adapter.
    down_ranks: Option<Tensor>,
}

/// Activations between a block's input and its last GEMM.
struct Kept {
    attention: Attention,
    gate_up: Projected,
    norms: Option<Norms>,
    gated: Option<Tensor>,
}

/// Activations of attention.
struct Attention {
    /// Rotated queries and keys, normalized before if the family does that.
    qkv: Projected,
    /// Queries and keys before the norm, if they are normalized and trained.
    raw: Option<Tensor>,
    attended: Attended,
    /// Ranks of the output projection's adapter.
    o_ranks: Option<Tensor>,
    /// Residual stream between attention and MLP.
    middle: Tensor,
}

/// Outputs that one pass over memory recomputes, as it does SwiGLU's.
#[derive(Clone, Copy)]
struct Norms {
    input: Normed,
    post: Normed,
}

impl TransformerBlock<'_> {
    /// Lowers the forward pass; returns the residual stream after the block.
    pub fn forward(&self, ops: &mut Ops<'_>, input: Tensor) -> Tensor {
        self.forward_to(ops, input, None)
    }

    /// Like [`Self::forward`]; writes the residual stream to `output`, if that is given, which may be `input`.
    pub fn forward_to(&self, ops: &mut Ops<'_>, input: Tensor, output: Option<Tensor>) -> Tensor {
        let w = self.weights;
        let (Attention { middle, .. }, norms) = self.attention(ops, input, ForwardPass::Alone);
        let gated = ops.linear_swiglu("gate_up", norms.post.rows, &w.gate_up);
        self.add_mlp(ops, gated, middle, output).y
    }

    /// Lowers what the block's keys and values follow from.
    pub fn fill_cache(&self, ops: &mut Ops<'_>, input: Tensor) {
        let input_norm = ops.norm("input_norm", input, &self.weights.input_norm, self.weights.out());
        let qkv = ops.linear("qkv", input_norm.rows, &self.weights.qkv);
        self.turn(ops, qkv.y, ForwardPass::Alone);
        if let Some(cache) = self.cache {
            ops.store("store", qkv.y, self.heads, cache);
        }
    }

    /// Like [`Self::forward`], saving activations for the backward pass as `recompute` allows.
    pub fn forward_saving(&self, ops: &mut Ops<'_>, input: Tensor, recompute: Recompute) -> (Tensor, Saved) {
        let kept = self.inner(ops, input);
        let down = &self.weights.down;
        let keeps = down.trains() && recompute == Recompute::None || down.adapter.is_some();
        let gated = self.gated(ops, kept.gate_up.y, keeps);
        let Projected { y, ranks } = self.add_mlp(ops, gated, kept.attention.middle, None);
        let kept = match recompute {
            Recompute::None => Some(Kept { gated: keeps.then(|| gated.dense()), ..kept }),
            Recompute::Norms => Some(Kept { norms: None, ..kept }),
            Recompute::Blocks => None,
        };
        (y, Saved { input, kept, down_ranks: ranks })
    }

    /// Lowers the last GEMM, which adds to the residual stream; writes the sum to `output`, if that is given.
    fn add_mlp(
        &self,
        ops: &mut Ops<'_>,
        gated: impl Into<ActivationRows>,
        middle: Tensor,
        output: Option<Tensor>,
    ) -> Projected {
        let down = &self.weights.down;
        if self.residual_scale == 1.0 {
            return ops.linear_add("down", gated, down, middle, output);
        }
        let Projected { y, ranks } = ops.linear("down", gated, down);
        Projected { y: ops.scale("down.scaled", y, self.residual_scale, Some(middle), output), ranks }
    }

    /// Adds what attention comes to, to the residual stream, and normalizes the sum; returns both.
    fn add_attention(&self, ops: &mut Ops<'_>, input: Tensor, branch: Tensor) -> (Tensor, Normed) {
        let w = self.weights;
        if self.residual_scale == 1.0 {
            return ops.add_norm("post_norm", input, branch, &w.post_norm, w.out());
        }
        let middle = ops.scale("o.scaled", branch, self.residual_scale, Some(input), None);
        (middle, ops.norm("post_norm", middle, &w.post_norm, w.out()))
    }

    /// Returns the gradient of what a branch adds, of that of the residual stream.
    fn of_branch(&self, ops: &mut Ops<'_>, name: &str, dstream: ActivationRows) -> ActivationRows {
        if self.residual_scale == 1.0 {
            return dstream;
        }
        ops.scale(&format!("{name}.dscaled"), dstream.dense(), self.residual_scale, None, None).into()
    }

    /// Lowers SwiGLU in the formats that the last GEMM reads, and if `kept` the backward pass too.
    fn gated(&self, ops: &mut Ops<'_>, gate_up: Tensor, kept: bool) -> ActivationRows {
        let out = self.weights.out();
        ops.swiglu("swiglu", gate_up, if kept { out } else { out.next() })
    }

    /// Lowers everything before SwiGLU and the last GEMM.
    fn inner(&self, ops: &mut Ops<'_>, input: Tensor) -> Kept {
        let (attention, norms) = self.attention(ops, input, ForwardPass::Saving);
        let gate_up = ops.linear("gate_up", norms.post.rows, &self.weights.gate_up);
        Kept { attention, gate_up, norms: Some(norms), gated: None }
    }

    /// Lowers attention with both norms around it.
    fn attention(&self, ops: &mut Ops<'_>, input: Tensor, pass: ForwardPass) -> (Attention, Norms) {
        let w = self.weights;
        let out = w.out();
        let input_norm = ops.norm("input_norm", input, &w.input_norm, out);
        let qkv = ops.linear("qkv", input_norm.rows, &w.qkv);
        let raw = self.turn(ops, qkv.y, pass);
        let attended = match self.cache {
            None => ops.attention("attention", qkv.y, self.heads),
            Some(cache) => {
                ops.store("store", qkv.y, self.heads, cache);
                ops.attention_decode("attention", qkv.y, self.heads, cache)
            }
        };
        // The o projection sums over few elements, so its store is the bottleneck: the norm, which reads the row
        // anyway, adds the residual. The down projection sums over many: there the addition is free.
        let branch = ops.linear("o", attended.o, &w.o);
        let (middle, post_norm) = self.add_attention(ops, input, branch.y);
        let attention = Attention { qkv, raw, attended, o_ranks: branch.ranks, middle };
        (attention, Norms { input: input_norm, post: post_norm })
    }

    /// Rotates the queries and keys of packed q, k and v. If the family normalizes them before and a backward pass
    /// follows, returns them unmodified.
    fn turn(&self, ops: &mut Ops<'_>, qkv: Tensor, pass: ForwardPass) -> Option<Tensor> {
        let rope = self.rope?;
        match &self.weights.qk_norm {
            Some(norm) => ops.qk_norm_rope("qk_norm", qkv, self.heads, rope, norm, pass),
            None => {
                ops.rope("rope", qkv, self.heads, rope);
                None
            }
        }
    }

    /// Propagates the gradient of the block's output to its input if anything `below` trains: a block, or the embedding
    /// alone. Stops at the lowest GEMM that trains.
    pub fn backward(
        &self,
        ops: &mut Ops<'_>,
        saved: Saved,
        doutput: ActivationRows,
        below: Option<Below>,
    ) -> Option<ActivationRows> {
        let w = self.weights;
        let out = |is_read| if is_read { w.out() } else { Out::Dense };
        // What the residual stream's gradient is scaled to is quantized then.
        let is_plain = self.residual_scale == 1.0;
        let below_block = below == Some(Below::Block);
        let below = below.is_some();
        let Saved { input, kept, down_ranks } = saved;
        let Kept { attention, gate_up, norms, gated } =
            kept.unwrap_or_else(|| ops.recompute(|ops| self.inner(ops, input)));
        let Attention { qkv, raw, attended, o_ranks, middle } = attention;
        let below_o = below || w.qkv.trains();
        let below_gate_up = below_o || w.o.trains();
        let below_down = below_gate_up || w.gate_up.trains();

        // If not kept, each is recomputed just before it is read.
        let recomputed = |ops: &mut Ops<'_>| ops.recompute(|ops| self.gated(ops, gate_up.y, true).dense());
        let gated = w.down.trains().then(|| gated.unwrap_or_else(|| recomputed(ops)));
        let given = Given { x: gated, ranks: down_ranks };
        let dbranch = self.of_branch(ops, "down", doutput);
        let dgated = linear_backward(ops, "down", dbranch, given, &w.down, below_down)?;
        let dgate_up = ops.swiglu_backward("swiglu", dgated, gate_up.y, out(below_gate_up));
        let post_norm = norms.map(|norms| norms.post);
        let post_norm =
            post_norm.unwrap_or_else(|| ops.recompute(|ops| ops.norm("post_norm", middle, &w.post_norm, w.out())));
        let given = Given { x: Some(post_norm.rows.dense()), ranks: gate_up.ranks };
        let dnormed = linear_backward(ops, "gate_up", dgate_up, given, &w.gate_up, below_gate_up)?;
        let (dresidual, norm) = (Some(doutput.dense()), (middle, post_norm));
        let dmiddle = ops.norm_backward("post_norm", dnormed, norm, &w.post_norm, dresidual, out(below_o && is_plain));

        let given = Given { x: Some(attended.o), ranks: o_ranks };
        let dbranch = self.of_branch(ops, "o", dmiddle);
        let d_o = linear_backward(ops, "o", dbranch, given, &w.o, below_o)?;
        let dqkv = ops.attention_backward("attention", d_o, qkv.y, attended, self.heads);
        match (self.rope, w.qk_norm.as_ref().zip(raw)) {
            (Some(rope), Some((norm, raw))) => {
                ops.qk_norm_rope_backward("qk_norm", dqkv, raw, self.heads, rope, norm);
            }
            (Some(rope), None) => ops.rope_backward("attention.rope", dqkv, self.heads, rope),
            (None, _) => {}
        }
        let input_norm = norms.map(|norms| norms.input);
        let input_norm =
            input_norm.unwrap_or_else(|| ops.recompute(|ops| ops.norm("input_norm", input, &w.input_norm, w.out())));
        let given = Given { x: Some(input_norm.rows.dense()), ranks: qkv.ranks };
        let dnormed = linear_backward(ops, "qkv", dqkv.into(), given, &w.qkv, below)?;
        let (dresidual, norm) = (Some(dmiddle.dense()), (input, input_norm));
        Some(ops.norm_backward("input_norm", dnormed, norm, &w.input_norm, dresidual, out(below_block && is_plain)))
    }
}

/// Lowers the gradients of a layer's trained weights, and of its input if anything `below` trains.
fn linear_backward(
    ops: &mut Ops<'_>,
    name: &str,
    dy: ActivationRows,
    given: Given,
    linear: &Linear,
    below: bool,
) -> Option<Tensor> {
    let dranks = ops.layer_gradients(name, dy.dense(), given, linear);
    below.then(|| ops.propagate(name, dy, dranks, linear))
}
