//! Lowers a transformer block, forward and backward.

use precast_kernels::{Gate, Out};

use crate::mixer::{self, Mixer};
use crate::ops::{ActivationRows, ForwardPass, Given, Normed, NormedBranch, Ops, Projected, Routes};
use crate::recipe::Recompute;
use crate::weights::{Layer, Linear, Norm};
use precast_core::plan::Tensor;

/// A block: its weights, and what it does with them.
pub(crate) struct TransformerBlock<'a> {
    pub weights: &'a Layer,
    pub mixer: Mixer<'a>,
    /// Rows and tiles of its experts, if there are some.
    pub routes: Option<Routes>,
    /// Factor of what mixer and MLP add to the residual stream.
    pub residual_scale: f32,
    /// Activation of the MLP's gate.
    pub gate: Gate,
    /// Norm of the residual stream after the block and the formats that it is read in, if the pass that adds the last
    /// branch computes it.
    pub next: Option<(&'a Norm, Out)>,
}

/// A residual stream, and its norm where the block below has computed it.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub x: Tensor,
    pub normed: Option<Normed>,
}

impl From<Tensor> for Stream {
    fn from(x: Tensor) -> Self {
        Self { x, normed: None }
    }
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
    /// The down projection's output, if it is normalized.
    down: Option<NormedBranch>,
}

/// Activations between a block's input and its last GEMM.
struct Kept {
    mixed: Mixed,
    gate_up: Projected,
    norms: Option<Norms>,
    gated: Option<Tensor>,
}

/// Activations of a mixer and the GEMMs around it.
struct Mixed {
    /// Output of the GEMM in front.
    projected: Projected,
    saved: mixer::Saved,
    /// Rows that the next GEMM reads.
    y: Tensor,
    /// Ranks of that GEMM's adapter.
    o_ranks: Option<Tensor>,
    /// Output of that GEMM, if it is normalized.
    branch: Option<NormedBranch>,
    /// Residual stream between mixer and MLP.
    middle: Tensor,
}

/// Outputs that one pass over memory recomputes, as it does SwiGLU's; none where the family has no norm.
#[derive(Clone, Copy)]
struct Norms {
    input: Option<Normed>,
    post: Option<Normed>,
}

impl TransformerBlock<'_> {
    /// Returns it with other weights, alone: no pass computes the next block's norm.
    pub fn with<'b>(&self, weights: &'b Layer) -> TransformerBlock<'b> {
        let Self { routes, residual_scale, gate, .. } = *self;
        TransformerBlock { weights, mixer: self.mixer.with(weights), routes, residual_scale, gate, next: None }
    }

    /// Lowers the forward pass; returns the residual stream after the block.
    pub fn forward(&self, ops: &mut Ops<'_>, input: Stream) -> Stream {
        self.forward_to(ops, input, None)
    }

    /// Like [`Self::forward`]; writes the residual stream to `output`, if that is given, which may be `input`.
    pub fn forward_to(&self, ops: &mut Ops<'_>, input: Stream, output: Option<Tensor>) -> Stream {
        let (Mixed { middle, .. }, norms) = self.mixed(ops, input, ForwardPass::Alone);
        if let Some((experts, routes)) = self.weights.experts.as_ref().zip(self.routes) {
            assert!(self.adds_plainly(), "no family scales or normalizes what experts add");
            let of = (self.gate, self.weights, experts);
            return ops.experts(of, routes, rows(norms.post, middle), (middle, output)).into();
        }
        let gated = ops.linear_swiglu("gate_up", self.gate, rows(norms.post, middle), &self.weights.gate_up);
        self.add_mlp(ops, gated, middle, output).0
    }

    /// Lowers what the block's keys and values follow from.
    pub fn fill_cache(&self, ops: &mut Ops<'_>, input: Stream) {
        let input_norm = self.input_norm(ops, input);
        let qkv = ops.linear("qkv", rows(input_norm, input.x), &self.weights.qkv);
        self.mixer.fill_cache(ops, qkv.y);
    }

    /// Like [`Self::forward`], saving activations for the backward pass as `recompute` allows.
    pub fn forward_saving(&self, ops: &mut Ops<'_>, input: Stream, recompute: Recompute) -> (Stream, Saved) {
        let kept = self.inner(ops, input);
        let w = &self.weights.down;
        let keeps = w.trains() && recompute == Recompute::None || w.adapter.is_some();
        let gated = self.gated(ops, kept.gate_up.y, keeps);
        let (output, down_ranks, down) = self.add_mlp(ops, gated, kept.mixed.middle, None);
        let kept = match recompute {
            Recompute::None => Some(Kept { gated: keeps.then(|| gated.dense()), ..kept }),
            Recompute::Norms => Some(Kept { norms: None, ..kept }),
            Recompute::Blocks => None,
        };
        (output, Saved { input: input.x, kept, down_ranks, down })
    }

    /// Lowers a norm of the residual stream in the formats that the next GEMM reads, if there is one.
    fn norm(&self, ops: &mut Ops<'_>, name: &str, x: Tensor, norm: &Option<Norm>) -> Option<Normed> {
        Some(ops.norm(name, x, norm.as_ref()?, self.weights.out()))
    }

    /// Returns the norm before attention, if there is one.
    fn input_norm(&self, ops: &mut Ops<'_>, input: Stream) -> Option<Normed> {
        input.normed.or_else(|| self.norm(ops, "input_norm", input.x, &self.weights.input_norm))
    }

    /// Adds a branch to the residual stream, normalized if there is a norm, else scaled; writes the sum to `output`, if
    /// that is given. Normalizes the sum if there is a `next` norm, of this name, to these formats. Returns both, and
    /// what the gradient of the branch's norm needs.
    fn add_branch(
        &self,
        ops: &mut Ops<'_>,
        name: &str,
        (stream, y): (Tensor, Tensor),
        norm: &Option<Norm>,
        next: Option<(&str, &Norm, Out)>,
        output: Option<Tensor>,
    ) -> (Tensor, Option<NormedBranch>, Option<Normed>) {
        let Some(norm) = norm else {
            let sum = ops.scale(&format!("{name}.sum"), y, self.residual_scale, Some(stream), output);
            return (sum, None, next.map(|(name, norm, out)| ops.norm(name, sum, norm, out)));
        };
        assert_eq!(self.residual_scale, 1.0, "no family scales what it normalizes");
        let (sum, branch, next) = ops.add_normed(name, (stream, y), norm, next, output);
        (sum, Some(branch), next)
    }

    /// True if branches are added to the residual stream as they are: by a GEMM or by the next norm.
    pub fn adds_plainly(&self) -> bool {
        self.residual_scale == 1.0 && self.weights.o_norm.is_none() && self.weights.down_norm.is_none()
    }

    /// Lowers the last GEMM, and adds it to the residual stream; writes the sum to `output`, if that is given. Returns
    /// the stream, ranks of the GEMM's adapter, and what the gradient of the branch's norm needs.
    fn add_mlp(
        &self,
        ops: &mut Ops<'_>,
        gated: impl Into<ActivationRows>,
        middle: Tensor,
        output: Option<Tensor>,
    ) -> (Stream, Option<Tensor>, Option<NormedBranch>) {
        let w = self.weights;
        if self.adds_plainly() {
            let Projected { y, ranks } = ops.linear_add("down", gated, &w.down, middle, output);
            return (y.into(), ranks, None);
        }
        let Projected { y, ranks } = ops.linear("down", gated, &w.down);
        let next = self.next.map(|(norm, out)| ("next_norm", norm, out));
        let (x, branch, normed) = self.add_branch(ops, "down", (middle, y), &w.down_norm, next, output);
        (Stream { x, normed }, ranks, branch)
    }

    /// Lowers SwiGLU in the formats that the last GEMM reads, and if `kept` the backward pass too.
    fn gated(&self, ops: &mut Ops<'_>, gate_up: Tensor, kept: bool) -> ActivationRows {
        let out = self.weights.out();
        ops.swiglu("swiglu", self.gate, gate_up, if kept { out } else { out.next() })
    }

    /// Lowers everything before SwiGLU and the last GEMM.
    fn inner(&self, ops: &mut Ops<'_>, input: Stream) -> Kept {
        let (mixed, norms) = self.mixed(ops, input, ForwardPass::Saving);
        let gate_up = ops.linear("gate_up", rows(norms.post, mixed.middle), &self.weights.gate_up);
        Kept { mixed, gate_up, norms: Some(norms), gated: None }
    }

    /// Lowers the mixer, the GEMMs around it and both norms.
    fn mixed(&self, ops: &mut Ops<'_>, input: Stream, pass: ForwardPass) -> (Mixed, Norms) {
        let (w, [first, second]) = (self.weights, self.mixer.names());
        let input_norm = self.input_norm(ops, input);
        let input = input.x;
        let projected = ops.linear(first, rows(input_norm, input), &w.qkv);
        let (mixed, saved) = self.mixer.forward(ops, projected.y, pass);
        let Projected { y, ranks: o_ranks } = ops.linear(second, mixed, &w.o);
        let (middle, branch, post) = match &w.post_norm {
            // The o projection sums over few elements, so its store is the bottleneck: the norm, which reads the row
            // anyway, adds the residual. The down projection sums over many: there the addition is free.
            Some(post_norm) if self.adds_plainly() => {
                let (middle, post) = ops.add_norm("post_norm", input, y, post_norm, w.post_out());
                (middle, None, Some(post))
            }
            next => {
                let next = next.as_ref().map(|next| ("post_norm", next, w.out()));
                self.add_branch(ops, second, (input, y), &w.o_norm, next, None)
            }
        };
        let mixed = Mixed { projected, saved, y: mixed, o_ranks, branch, middle };
        (mixed, Norms { input: input_norm, post })
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
        let (w, [first_name, second_name]) = (self.weights, self.mixer.names());
        let out = |is_read| if is_read { w.out() } else { Out::Dense };
        let is_plain = self.adds_plainly();
        let below_block = below == Some(Below::Block);
        let below = below.is_some();
        let Saved { input, kept, down_ranks, down } = saved;
        let Kept { mixed, gate_up, norms, gated } =
            kept.unwrap_or_else(|| ops.recompute(|ops| self.inner(ops, input.into())));
        let Mixed { projected, saved, y, o_ranks, branch, middle } = mixed;
        let below_o = below || w.qkv.trains();
        let below_gate_up = below_o || w.o.trains();
        let below_down = below_gate_up || w.gate_up.trains();

        // If not kept, each is recomputed just before it is read.
        let recomputed = |ops: &mut Ops<'_>| ops.recompute(|ops| self.gated(ops, gate_up.y, true).dense());
        let gated = w.down.trains().then(|| gated.unwrap_or_else(|| recomputed(ops)));
        let given = Given { x: gated, ranks: down_ranks };
        let dbranch = self.of_branch(ops, "down", doutput, (down, &w.down_norm), out(below_down));
        let dgated = linear_backward(ops, "down", dbranch, given, &w.down, below_down)?;
        let dgate_up = ops.swiglu_backward("swiglu", self.gate, dgated, gate_up.y, out(below_gate_up));
        let again = |ops: &mut Ops<'_>, name: &str, x, norm| ops.recompute(|ops| self.norm(ops, name, x, norm));
        let post = norms.map_or_else(|| again(ops, "post_norm", middle, &w.post_norm), |norms| norms.post);
        let given = Given { x: Some(rows(post, middle).dense()), ranks: gate_up.ranks };
        let dx = linear_backward(ops, "gate_up", dgate_up, given, &w.gate_up, below_gate_up)?;
        let dresidual = doutput.dense();
        let post = (middle, post, &w.post_norm);
        let dmiddle = of_stream(ops, "post_norm", (dx, dresidual), post, out(below_o && is_plain));

        let given = Given { x: Some(y), ranks: o_ranks };
        let dbranch = self.of_branch(ops, second_name, dmiddle, (branch, &w.o_norm), out(below_o));
        let dy = linear_backward(ops, second_name, dbranch, given, &w.o, below_o)?;
        let dprojected = self.mixer.backward(ops, dy, projected.y, saved);
        let first = norms.map_or_else(|| again(ops, "input_norm", input, &w.input_norm), |norms| norms.input);
        let given = Given { x: Some(rows(first, input).dense()), ranks: projected.ranks };
        let dx = linear_backward(ops, first_name, dprojected.into(), given, &w.qkv, below)?;
        let first = (input, first, &w.input_norm);
        Some(of_stream(ops, "input_norm", (dx, dmiddle.dense()), first, out(below_block && is_plain)))
    }

    /// Returns the gradient of a branch of the residual stream, of that of the stream.
    fn of_branch(
        &self,
        ops: &mut Ops<'_>,
        name: &str,
        dstream: ActivationRows,
        (branch, norm): (Option<NormedBranch>, &Option<Norm>),
        out: Out,
    ) -> ActivationRows {
        if self.adds_plainly() {
            return dstream;
        }
        match branch.zip(norm.as_ref()) {
            Some((NormedBranch { y, rstd }, norm)) => {
                ops.norm_backward(&format!("{name}_norm"), dstream.dense(), (y, rstd), norm, None, out)
            }
            None => ops.scaled(&format!("{name}.dsum"), dstream.dense(), self.residual_scale).into(),
        }
    }
}

/// Returns what a GEMM reads: a norm's output, or the residual stream itself.
fn rows(normed: Option<Normed>, stream: Tensor) -> ActivationRows {
    normed.map_or(stream.into(), |normed| normed.rows)
}

/// Lowers the gradient of the residual stream, given that of what a GEMM reads, and of the stream behind the branch.
fn of_stream(
    ops: &mut Ops<'_>,
    name: &str,
    (dx, dresidual): (Tensor, Tensor),
    (stream, normed, norm): (Tensor, Option<Normed>, &Option<Norm>),
    out: Out,
) -> ActivationRows {
    match normed.zip(norm.as_ref()) {
        Some((normed, norm)) => ops.norm_backward(name, dx, (stream, normed.rstd), norm, Some(dresidual), out),
        None => ops.scale(&format!("{name}.dsum"), dx, 1.0, Some(dresidual), None).into(),
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
