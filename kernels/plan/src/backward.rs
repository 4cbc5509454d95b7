//! The backward pass of the student.

use std::cell::Cell;

use precast_kernels::Dtype;
use precast_kernels::abi::{
    attention_bwd_params, attention_delta_params, column_sum_finish_params, column_sum_partial_params,
    embedding_bwd_params, fill_params, gemm_dgrad_params, gemm_wgrad_params, rmsnorm_bwd_params, swiglu_bwd_params,
};
use precast_kernels::attention::{AttentionBwd, AttentionDelta};
use precast_kernels::column_sum::{ColumnSumFinish, ColumnSumPartial};
use precast_kernels::embedding::EmbeddingBwd;
use precast_kernels::fill::Fill;
use precast_kernels::gemm::{GemmDgrad, GemmWgrad};
use precast_kernels::rmsnorm::RmsnormBwd;
use precast_kernels::rope::RopeBwd;
use precast_kernels::swiglu::SwigluBwd;

use crate::forward::{Activations, BlockActivations, Model};
use crate::parameters::Span;
use crate::plan::{Builder, Tensor};

/// Rows that share one partial sum of a bias or gamma gradient.
const GROUP: u32 = 32;

/// Where gradients go, and what decides between overwriting and adding.
pub(crate) struct Gradients {
    /// The flat gradients, f32, laid out as the weights.
    pub flat: Tensor,
    /// `micro_scalars` of the micro-batch.
    pub micro: Tensor,
    /// Zeros for the launches that divide their sums.
    pub turns: Turns,
}

/// Words that are 0 between launches. Each launch has its own, so that none waits for another.
pub(crate) struct Turns {
    all: Tensor,
    taken: Cell<u64>,
}

impl Turns {
    /// Enough for the layers of any model that one GPU trains.
    pub const WORDS: u64 = 1 << 19;

    pub fn new(all: Tensor) -> Self {
        Self { all, taken: Cell::new(0) }
    }

    /// The next `count`, if there are so many left.
    fn take(&self, count: u64) -> Option<Tensor> {
        let start = self.taken.get();
        let end = start + count.next_multiple_of(4); // 16 bytes
        (end <= self.all.elems).then(|| {
            self.taken.set(end);
            self.all.slice(start, count)
        })
    }
}

impl Gradients {
    fn of(&self, span: Span) -> Tensor {
        self.flat.slice(span.start, span.elems)
    }
}

/// A linear layer seen from its output gradient.
pub(crate) struct LinearGrad {
    pub dy: Tensor,
    pub x: Tensor,
    pub weight: Span,
    pub bias: Option<Span>,
    pub n: u32,
    pub k: u32,
}

impl Model<'_> {
    /// Weight gradient. `accumulate` adds whatever the micro-batch.
    pub fn wgrad(&self, b: &mut Builder, label: &str, g: &Gradients, l: &LinearGrad, accumulate: bool) {
        let kernel = GemmWgrad { x: self.dtype() };
        let mut params = gemm_wgrad_params {
            dy: l.dy.address(),
            x: l.x.address(),
            micro: g.micro.address(),
            dw: g.of(l.weight).address(),
            m: (l.x.elems / u64::from(l.k)) as u32,
            n: l.n,
            k: l.k,
            accumulate: u32::from(accumulate),
            ..Default::default()
        };
        if let Some((splits, turns)) = kernel.division(&params)
            && let Some(turns) = g.turns.take(turns)
        {
            (params.splits, params.turns) = (splits, turns.address());
        }
        b.launch(format!("{label}.wgrad"), kernel, &params);
    }

    /// Input gradient into `dx`.
    pub fn dgrad_into(&self, b: &mut Builder, label: &str, g: &Gradients, l: &LinearGrad, dx: Tensor) {
        let kernel = GemmDgrad { w: self.dtype().into(), x: self.dtype() };
        let mut params = gemm_dgrad_params {
            dy: l.dy.address(),
            w: self.weight(l.weight).address(),
            dx: dx.address(),
            m: (l.dy.elems / u64::from(l.n)) as u32,
            n: l.n,
            k: l.k,
            ..Default::default()
        };
        if let Some((splits, turns)) = kernel.division(&params)
            && let Some(turns) = g.turns.take(turns)
        {
            let elems = GemmDgrad::partials(&params);
            params.partials = b.transient(format!("{label}.dgrad_partials"), Dtype::F32, elems).address();
            (params.splits, params.turns) = (splits, turns.address());
        }
        b.launch(format!("{label}.dgrad"), kernel, &params);
    }

    /// Gradients of weights, bias and input of a linear layer; returns the input's.
    fn linear_backward(&self, b: &mut Builder, label: &str, g: &Gradients, l: &LinearGrad) -> Tensor {
        self.wgrad(b, label, g, l, false);
        if let Some(bias) = l.bias {
            self.bias_backward(b, label, g, l.dy, l.n, bias);
        }
        let dx = b.transient(format!("{label}.dx"), self.dtype(), l.x.elems);
        self.dgrad_into(b, label, g, l, dx);
        dx
    }

    fn bias_backward(&self, b: &mut Builder, label: &str, g: &Gradients, dy: Tensor, n: u32, bias: Span) {
        let groups = self.tokens().div_ceil(GROUP);
        let partial = b.transient(format!("{label}.bias_partial"), Dtype::F32, u64::from(groups) * u64::from(n));
        let params = column_sum_partial_params {
            x: dy.address(),
            partial: partial.address(),
            rows: self.tokens(),
            n,
            group: GROUP,
            reserved: 0,
        };
        b.launch(format!("{label}.bias_partial"), ColumnSumPartial { x: self.dtype() }, &params);
        self.column_sum(b, &format!("{label}.bias"), g, partial, n, bias);
    }

    fn column_sum(&self, b: &mut Builder, label: &str, g: &Gradients, partial: Tensor, n: u32, span: Span) {
        let params = column_sum_finish_params {
            partial: partial.address(),
            micro: g.micro.address(),
            grad: g.of(span).address(),
            rows: (partial.elems / u64::from(n)) as u32,
            n,
        };
        b.launch(label, ColumnSumFinish {}, &params);
    }

    /// Gradient through a norm, added to the residual stream's gradient if there is one.
    #[allow(clippy::too_many_arguments)] // one for each operand
    fn norm_backward(
        &self,
        b: &mut Builder,
        label: &str,
        g: &Gradients,
        gamma: Span,
        dy: Tensor,
        (x, rstd): (Tensor, Tensor),
        dresidual: Option<Tensor>,
    ) -> Tensor {
        let h = self.config.hidden;
        let dx = self.rows(b, &format!("{label}.dx"), h);
        let groups = self.tokens().div_ceil(GROUP);
        let partial = b.transient(format!("{label}.dgamma_partial"), Dtype::F32, u64::from(groups) * u64::from(h));
        let params = rmsnorm_bwd_params {
            dy: dy.address(),
            x: x.address(),
            gamma: self.weight(gamma).address(),
            rstd: rstd.address(),
            dresidual: dresidual.map_or(0, Tensor::address),
            dx: dx.address(),
            dgamma_partial: partial.address(),
            tokens: self.tokens(),
            rows: GROUP,
        };
        let key = RmsnormBwd { h, residual: dresidual.is_some(), x: self.dtype() };
        b.launch(format!("{label}.bwd"), key, &params);
        self.column_sum(b, &format!("{label}.dgamma"), g, partial, h, gamma);
        dx
    }

    /// Gradient of the packed q, k and v before rotation.
    fn attention_backward(&self, b: &mut Builder, label: &str, a: &BlockActivations, d_o: Tensor) -> Tensor {
        let c = self.config;
        let delta = b.transient(format!("{label}.delta"), Dtype::F32, a.lse.elems);
        let params = attention_delta_params {
            o: a.attention.address(),
            d_o: d_o.address(),
            delta: delta.address(),
            batch: self.batch,
            seq_len: self.seq_len,
            heads: c.heads,
            reserved: 0,
        };
        b.launch(format!("{label}.delta"), AttentionDelta { d: c.head_dim, x: self.dtype() }, &params);
        let dqkv = self.rows(b, &format!("{label}.dqkv"), c.qkv_width());
        let params = attention_bwd_params {
            qkv: a.qkv.address(),
            d_o: d_o.address(),
            lse: a.lse.address(),
            delta: delta.address(),
            dqkv: dqkv.address(),
            batch: self.batch,
            seq_len: self.seq_len,
            heads: c.heads,
            kv_heads: c.kv_heads,
            scale: self.attention_scale(),
            reserved: 0,
        };
        b.launch(format!("{label}.bwd"), AttentionBwd { d: c.head_dim, x: self.dtype() }, &params);
        b.launch(format!("{label}.rope_bwd"), RopeBwd { d: c.head_dim, x: self.dtype() }, &self.rope(dqkv));
        dqkv
    }

    /// One transformer block backwards: from the gradient of its output to that of its input.
    fn block_backward(
        &self,
        b: &mut Builder,
        layer: usize,
        g: &Gradients,
        a: &BlockActivations,
        doutput: Tensor,
    ) -> Tensor {
        let c = self.config;
        let spans = self.parameters.layers[layer];
        let name = |part: &str| format!("{}.layers.{layer}.{part}", self.role);

        let gate_up = a.gate_up.expect("a trained model keeps it");
        let activated = a.activated.unwrap_or_else(|| self.swiglu(b, &name("swiglu.recompute"), gate_up));
        let down = LinearGrad {
            dy: doutput,
            x: activated,
            weight: spans.down,
            bias: spans.down_bias,
            n: c.hidden,
            k: c.intermediate,
        };
        let dactivated = self.linear_backward(b, &name("down"), g, &down);
        let dgate_up = self.rows(b, &name("swiglu.dgate_up"), 2 * c.intermediate);
        let params = swiglu_bwd_params {
            gate_up: gate_up.address(),
            dy: dactivated.address(),
            dgate_up: dgate_up.address(),
            tokens: self.tokens(),
            n: c.intermediate,
        };
        b.launch(name("swiglu.bwd"), SwigluBwd { x: self.dtype() }, &params);
        let middle_norm =
            a.middle_norm.unwrap_or_else(|| self.norm(b, &name("post_norm.recompute"), spans.post_norm, a.middle));
        let gate_up = LinearGrad {
            dy: dgate_up,
            x: middle_norm.y,
            weight: spans.gate_up,
            bias: spans.gate_up_bias,
            n: 2 * c.intermediate,
            k: c.hidden,
        };
        let dnormed = self.linear_backward(b, &name("gate_up"), g, &gate_up);
        let saved = (a.middle, middle_norm.rstd);
        let dmiddle = self.norm_backward(b, &name("post_norm"), g, spans.post_norm, dnormed, saved, Some(doutput));

        let o = LinearGrad {
            dy: dmiddle,
            x: a.attention,
            weight: spans.o,
            bias: spans.o_bias,
            n: c.hidden,
            k: c.attention_width(),
        };
        let d_o = self.linear_backward(b, &name("o"), g, &o);
        let dqkv = self.attention_backward(b, &name("attention"), a, d_o);
        let input_norm =
            a.input_norm.unwrap_or_else(|| self.norm(b, &name("input_norm.recompute"), spans.input_norm, a.input));
        let qkv = LinearGrad {
            dy: dqkv,
            x: input_norm.y,
            weight: spans.qkv,
            bias: spans.qkv_bias,
            n: c.qkv_width(),
            k: c.hidden,
        };
        let dnormed = self.linear_backward(b, &name("qkv"), g, &qkv);
        let saved = (a.input, input_norm.rstd);
        self.norm_backward(b, &name("input_norm"), g, spans.input_norm, dnormed, saved, Some(dmiddle))
    }

    /// Everything below the head: from the gradient of the final hidden states to that of the embedding.
    pub fn backward(
        &self,
        b: &mut Builder,
        g: &Gradients,
        a: &Activations,
        dhidden: Tensor,
        (sorted_ids, sorted_positions): (Tensor, Tensor),
    ) {
        let norm = format!("{}.norm", self.role);
        let saved = (a.last, a.norm.rstd);
        let mut dstream = self.norm_backward(b, &norm, g, self.parameters.norm, dhidden, saved, None);
        for (layer, block) in a.blocks.iter().enumerate().rev() {
            dstream = self.block_backward(b, layer, g, block, dstream);
        }
        let embedding = g.of(self.parameters.embedding);
        let label = format!("{}.embedding.bwd", self.role);
        if !self.config.tied {
            // Only rows that occur are added to. A tied table has been overwritten whole by the head.
            let params = fill_params {
                micro: g.micro.address(),
                y: embedding.address(),
                n: embedding.elems,
                value: 0.0,
                reserved: 0,
            };
            b.launch(format!("{}.embedding.clear", self.role), Fill { first: true }, &params);
        }
        let params = embedding_bwd_params {
            sorted_ids: sorted_ids.address(),
            sorted_positions: sorted_positions.address(),
            dy: dstream.address(),
            dtable: embedding.address(),
            tokens: self.tokens(),
            vocab: self.config.vocab,
        };
        b.launch(label, EmbeddingBwd { h: self.config.hidden, x: self.dtype() }, &params);
    }
}
