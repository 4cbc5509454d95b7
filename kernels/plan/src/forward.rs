//! The forward pass of one model.

use precast_kernels::Dtype;
use precast_kernels::abi::{
    attention_fwd_params, embedding_fwd_params, gemm_fwd_params, gemm_swiglu_params, rmsnorm_fwd_params, rope_params,
    swiglu_fwd_params,
};
use precast_kernels::attention::AttentionFwd;
use precast_kernels::embedding::EmbeddingFwd;
use precast_kernels::gemm::{GemmFwd, GemmSwiglu};
use precast_kernels::rmsnorm::RmsnormFwd;
use precast_kernels::rope::RopeFwd;
use precast_kernels::swiglu::SwigluFwd;

use crate::config::ModelConfig;
use crate::memory::Category;
use crate::parameters::{Parameters, Span};
use crate::plan::{Builder, Tensor};

/// A model in a plan: its shape, its weights, and the run's shape.
pub(crate) struct Model<'a> {
    /// `teacher`, `student` or `model`: the first part of every label and buffer name.
    pub role: &'static str,
    /// Whether a backward pass follows.
    pub trained: bool,
    pub config: &'a ModelConfig,
    pub parameters: &'a Parameters,
    /// The flat weights in the precision of the run.
    pub weights: Tensor,
    pub batch: u32,
    pub seq_len: u32,
    pub cos: Tensor,
    pub sin: Tensor,
}

/// What a norm gives: the normalised rows, and the scale of each, which its backward needs.
#[derive(Clone, Copy)]
pub(crate) struct Normed {
    pub y: Tensor,
    pub rstd: Tensor,
}

/// What a block's backward needs of its forward; none where it computes that again.
pub(crate) struct BlockActivations {
    /// Residual stream into the block.
    pub input: Tensor,
    pub input_norm: Option<Normed>,
    /// Queries and keys rotated.
    pub qkv: Tensor,
    pub attention: Tensor,
    pub lse: Tensor,
    /// Residual stream between attention and MLP.
    pub middle: Tensor,
    pub middle_norm: Option<Normed>,
    /// None in a model that is not trained.
    pub gate_up: Option<Tensor>,
    /// Output of SwiGLU.
    pub activated: Option<Tensor>,
}

/// What a forward pass leaves behind.
pub(crate) struct Activations {
    pub blocks: Vec<BlockActivations>,
    /// Residual stream after the last block.
    pub last: Tensor,
    /// What the head reads.
    pub norm: Normed,
}

impl Activations {
    /// Leaves to the backward pass what takes one pass over memory to compute again from what is kept.
    pub fn forget_cheap(&mut self) {
        for block in &mut self.blocks {
            (block.input_norm, block.middle_norm, block.activated) = (None, None, None);
        }
    }
}

/// A product `y = x w^T` of a linear layer.
pub(crate) struct Linear {
    pub x: Tensor,
    pub weight: Span,
    pub bias: Option<Span>,
    pub residual: Option<Tensor>,
    pub n: u32,
    pub k: u32,
}

impl<'a> Model<'a> {
    /// Declares the rotary tables and gathers what describes a model in a plan: one that is not trained.
    pub fn new(
        b: &mut Builder,
        role: &'static str,
        (config, parameters): (&'a ModelConfig, &'a Parameters),
        weights: Tensor,
        (batch, seq_len): (u32, u32),
    ) -> Self {
        let elems = u64::from(seq_len) * u64::from(config.head_dim / 2);
        let cos = b.persistent(format!("{role}.rope.cos"), Category::Inputs, Dtype::F32, elems);
        let sin = b.persistent(format!("{role}.rope.sin"), Category::Inputs, Dtype::F32, elems);
        Self { role, trained: false, config, parameters, weights, batch, seq_len, cos, sin }
    }

    pub fn tokens(&self) -> u32 {
        self.batch * self.seq_len
    }

    pub fn dtype(&self) -> Dtype {
        self.weights.dtype
    }

    pub fn weight(&self, span: Span) -> Tensor {
        self.weights.slice(span.start, span.elems)
    }

    /// A transient buffer of tokens x width in the precision of the run.
    pub fn rows(&self, b: &mut Builder, name: &str, width: u32) -> Tensor {
        b.transient(name, self.dtype(), u64::from(self.tokens()) * u64::from(width))
    }

    /// Declares y [m, n] and launches `y = x w^T (+ bias) (+ residual)`, m the rows of x.
    pub fn linear(&self, b: &mut Builder, name: &str, linear: &Linear) -> Tensor {
        let m = (linear.x.elems / u64::from(linear.k)) as u32;
        let y = b.transient(name, self.dtype(), u64::from(m) * u64::from(linear.n));
        let key = GemmFwd { bias: linear.bias.is_some(), residual: linear.residual.is_some(), w: self.dtype().into(), x: self.dtype() };
        let params = gemm_fwd_params {
            x: linear.x.address(),
            w: self.weight(linear.weight).address(),
            bias: linear.bias.map_or(0, |bias| self.weight(bias).address()),
            residual: linear.residual.map_or(0, Tensor::address),
            y: y.address(),
            m,
            n: linear.n,
            k: linear.k,
            ..Default::default()
        };
        b.launch(name, key, &params);
        y
    }

    /// Normalises `x`, after adding `delta` to it if there is one, and returns the residual stream too.
    fn add_norm(&self, b: &mut Builder, name: &str, gamma: Span, x: Tensor, delta: Option<Tensor>) -> (Tensor, Normed) {
        let h = self.config.hidden;
        let stream = delta.map_or(x, |_| self.rows(b, &format!("{name}.sum"), h));
        let rstd = b.transient(format!("{name}.rstd"), Dtype::F32, u64::from(self.tokens()));
        let y = self.rows(b, name, h);
        let params = rmsnorm_fwd_params {
            x: x.address(),
            delta: delta.map_or(0, Tensor::address),
            sum: delta.map_or(0, |_| stream.address()),
            gamma: self.weight(gamma).address(),
            y: y.address(),
            rstd: rstd.address(),
            eps: self.config.rms_norm_eps,
            tokens: self.tokens(),
        };
        b.launch(name, RmsnormFwd { h, residual: delta.is_some(), x: self.dtype() }, &params);
        (stream, Normed { y, rstd })
    }

    /// Normalises `x`.
    pub fn norm(&self, b: &mut Builder, name: &str, gamma: Span, x: Tensor) -> Normed {
        self.add_norm(b, name, gamma, x, None).1
    }

    /// Gates the up projection.
    pub fn swiglu(&self, b: &mut Builder, name: &str, gate_up: Tensor) -> Tensor {
        let n = self.config.intermediate;
        let y = self.rows(b, name, n);
        let params = swiglu_fwd_params { gate_up: gate_up.address(), y: y.address(), tokens: self.tokens(), n };
        b.launch(name, SwigluFwd { x: self.dtype() }, &params);
        y
    }

    /// The gate and up projection of a model that is not trained: its gated output alone.
    fn gated(&self, b: &mut Builder, name: &str, x: Tensor, (weight, bias): (Span, Option<Span>)) -> Tensor {
        let n = self.config.intermediate;
        let y = self.rows(b, name, n);
        let params = gemm_swiglu_params {
            x: x.address(),
            w: self.weight(weight).address(),
            bias: bias.map_or(0, |bias| self.weight(bias).address()),
            y: y.address(),
            m: self.tokens(),
            n,
            k: self.config.hidden,
            ..Default::default()
        };
        b.launch(name, GemmSwiglu { bias: bias.is_some(), w: self.dtype().into(), x: self.dtype() }, &params);
        y
    }

    /// The parameter block of the rotary embedding over a packed qkv buffer.
    pub fn rope(&self, qkv: Tensor) -> rope_params {
        rope_params {
            x: qkv.address(),
            cos: self.cos.address(),
            sin: self.sin.address(),
            tokens: self.tokens(),
            seq_len: self.seq_len,
            heads: self.config.heads + self.config.kv_heads,
            row_stride: self.config.qkv_width(),
        }
    }

    pub fn attention_scale(&self) -> f32 {
        1.0 / (self.config.head_dim as f32).sqrt()
    }

    /// One transformer block: what its backward needs, and the residual stream after it.
    fn block(&self, b: &mut Builder, layer: usize, input: Tensor) -> (BlockActivations, Tensor) {
        let c = self.config;
        let spans = self.parameters.layers[layer];
        let name = |part: &str| format!("{}.layers.{layer}.{part}", self.role);

        let input_norm = self.norm(b, &name("input_norm"), spans.input_norm, input);
        let qkv = Linear {
            x: input_norm.y,
            weight: spans.qkv,
            bias: spans.qkv_bias,
            residual: None,
            n: c.qkv_width(),
            k: c.hidden,
        };
        let qkv = self.linear(b, &name("qkv"), &qkv);
        b.launch(name("rope"), RopeFwd { d: c.head_dim, x: self.dtype() }, &self.rope(qkv));
        let attention = self.rows(b, &name("attention"), c.attention_width());
        let lse = b.transient(name("lse"), Dtype::F32, u64::from(self.tokens()) * u64::from(c.heads));
        let params = attention_fwd_params {
            qkv: qkv.address(),
            o: attention.address(),
            lse: lse.address(),
            batch: self.batch,
            seq_len: self.seq_len,
            heads: c.heads,
            kv_heads: c.kv_heads,
            scale: self.attention_scale(),
            reserved: 0,
        };
        b.launch(name("attention"), AttentionFwd { d: c.head_dim, x: self.dtype() }, &params);

        // The o projection sums over few elements, so its store is what it waits for: the residual is added
        // where the row is read anyway, in the norm. The down projection sums over many: there it is free.
        let o = Linear {
            x: attention,
            weight: spans.o,
            bias: spans.o_bias,
            residual: None,
            n: c.hidden,
            k: c.attention_width(),
        };
        let delta = self.linear(b, &name("o"), &o);
        let (middle, middle_norm) = self.add_norm(b, &name("post_norm"), spans.post_norm, input, Some(delta));
        let (gate_up, activated) = if self.trained {
            let gate_up = Linear {
                x: middle_norm.y,
                weight: spans.gate_up,
                bias: spans.gate_up_bias,
                residual: None,
                n: 2 * c.intermediate,
                k: c.hidden,
            };
            let gate_up = self.linear(b, &name("gate_up"), &gate_up);
            (Some(gate_up), self.swiglu(b, &name("swiglu"), gate_up))
        } else {
            (None, self.gated(b, &name("gate_up"), middle_norm.y, (spans.gate_up, spans.gate_up_bias)))
        };
        let down = Linear {
            x: activated,
            weight: spans.down,
            bias: spans.down_bias,
            residual: Some(middle),
            n: c.hidden,
            k: c.intermediate,
        };
        let output = self.linear(b, &name("down"), &down);
        let activations = BlockActivations {
            input,
            input_norm: Some(input_norm),
            qkv,
            attention,
            lse,
            middle,
            middle_norm: Some(middle_norm),
            gate_up,
            activated: Some(activated),
        };
        (activations, output)
    }

    /// Embedding, all blocks and the final norm. Nothing is kept alive longer than later launches need it.
    pub fn forward(&self, b: &mut Builder, ids: Tensor) -> Activations {
        let c = self.config;
        let mut stream = self.rows(b, &format!("{}.embedding", self.role), c.hidden);
        let params = embedding_fwd_params {
            ids: ids.address(),
            table: self.weight(self.parameters.embedding).address(),
            y: stream.address(),
            tokens: self.tokens(),
            vocab: c.vocab,
        };
        b.launch(format!("{}.embedding", self.role), EmbeddingFwd { h: c.hidden, x: self.dtype() }, &params);
        let mut blocks = Vec::new();
        for layer in 0..c.layers as usize {
            let (block, output) = self.block(b, layer, stream);
            blocks.push(block);
            stream = output;
        }
        let norm = self.norm(b, &format!("{}.norm", self.role), self.parameters.norm, stream);
        Activations { blocks, last: stream, norm }
    }
}
