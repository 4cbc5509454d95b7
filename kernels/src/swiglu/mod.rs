//! SwiGLU: the gated activation of the MLP.
//!
//! Forward: `y = gate * sigmoid(gate) * up`. Backward, with `s = sigmoid(gate)`:
//! `dgate = dy * up * s * (1 + gate * (1 - s))`, `dup = dy * gate * s`. With `gate=gelu_tanh` (GeGLU) s is the
//! sigmoid of `2 sqrt(2 / pi) (gate + 0.044715 gate^3)`, so that `gate * s` is GELU by tanh.
//!
//! `swiglu.fwd` with `out=bf16+i8` also writes y in rotated int8 ([`crate::int8`]), with `out=i8` only that, both from
//! y in bf16. `swiglu.bwd` with `out=bf16+i8` does so with `dgate_up`. Rows then have n elements, a field of their
//! keys.
//!
//! Source: Shazeer, "GLU Variants Improve Transformer", 2020.

mod host;

pub use crate::abi::{SwigluBwd, SwigluFwd};

use crate::host::Views;
use crate::int8::{RotatedRows, int8_source, neighbors, rows};
use crate::{
    Arch, Batch, Build, Dtype, Gate, Geometry, Operand, Out, Reference, Source, Threads, Tolerance, source, variant,
};

variant! {
    /// Layout of rows over threads: plain, or for rotation and quantization.
    pub enum Layout {
        Threads,
        RotatedRows,
    }
}

impl Layout {
    /// Returns the layouts of a key; `rotated` for rows in registers.
    fn all(n: Option<u32>, out: Out, x: Dtype, rotated: impl Fn(u32) -> Vec<RotatedRows>) -> Vec<Self> {
        match (out, n) {
            (Out::Dense, None) => vec![Layout::Threads(Threads { threads: 128 })],
            (Out::DenseAndInt8 | Out::Int8, Some(n)) if x == Dtype::Bf16 => {
                rotated(n).into_iter().map(Layout::RotatedRows).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Up to 64 CTAs per token, enough to give each thread one vector; or as many rows per CTA as fit its threads.
    fn geometry(self, x: Dtype, tokens: u32, n: u32) -> Geometry {
        match self {
            Layout::Threads(Threads { threads }) => {
                let segments = (n / x.vector_width(n)).div_ceil(threads).min(64);
                Geometry::linear(tokens * segments, threads)
            }
            Layout::RotatedRows(rotated) => rotated.geometry(tokens),
        }
    }
}

/// Returns the gates and dtypes of examples that write their inputs' dtype.
fn dense() -> impl Iterator<Item = (Gate, Dtype)> {
    [Gate::Silu, Gate::GeluTanh].into_iter().flat_map(|gate| [Dtype::Bf16, Dtype::F32].map(|x| (gate, x)))
}

/// Returns small launches as (tokens, n): rows of the key's n, or of any.
fn samples(n: Option<u32>) -> Vec<(u32, u32)> {
    match n {
        Some(n) => vec![(1, n), (19, n)],
        None => vec![(1, 1), (5, 259), (3, 128), (2, 2056), (2, 8201)],
    }
}

/// Returns the launch that a benchmark times, as (tokens, n): equally many elements for any n.
fn typical(n: Option<u32>, batch: Batch) -> (u32, u32) {
    let n = n.unwrap_or(Batch::WIDTH);
    ((batch.elems() / u64::from(n)) as u32, n)
}

impl SwigluBwd {
    /// Most elements of gate and up that fit the threads' registers.
    const MOST_COLUMNS: u32 = 16_384;
    /// Largest rotation block, elements: if it divides n, no block has elements of both gate and up.
    const ROTATION: u32 = 128;

    /// Returns the formats of the gradients of n gates, of those requested.
    pub fn writes(n: u32, out: Out) -> Out {
        if n.is_multiple_of(Self::ROTATION) && n <= Self::MOST_COLUMNS { out } else { Out::Dense }
    }
}

impl Build for SwigluFwd {
    type Variant = Layout;

    fn variants(&self, _arch: Arch) -> Vec<Layout> {
        Layout::all(self.n, self.out, self.x, |n| rows(n, 128, 1024))
    }

    fn source(&self, variant: Layout) -> Source {
        match variant {
            Layout::Threads(_) => source!("swiglu", "fwd.cu", "segment.cuh"),
            Layout::RotatedRows(_) => int8_source!("swiglu", "fwd.cu", "swiglu"),
        }
    }

    fn geometry(&self, variant: Layout, p: &Self::Params) -> Geometry {
        variant.geometry(self.x, p.tokens, p.n)
    }
}

impl Reference for SwigluFwd {
    fn examples() -> Vec<Self> {
        let dense = dense().map(|(gate, x)| Self { gate, n: None, out: Out::Dense, x });
        let kept = [(48, true), (96, false), (272, true), (1536, false), (4864, true)].map(|row| (Gate::Silu, row));
        let kept = kept.into_iter().chain([(Gate::GeluTanh, (96, true))]);
        let out = |kept| if kept { Out::DenseAndInt8 } else { Out::Int8 };
        let int8 = kept.map(|(gate, (n, kept))| Self { gate, n: Some(n), out: out(kept), x: Dtype::Bf16 });
        dense.chain(int8).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let params = |(tokens, n)| Self::Params { tokens, n, ..Default::default() };
        samples(self.n).into_iter().map(params).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, n) = typical(self.n, batch);
        Self::Params { tokens, n, ..Default::default() }
    }

    /// The exponential is approximate: a value rounded to the neighboring number moves its whole rotation block a
    /// little.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbors(operand)
    }
}

impl Build for SwigluBwd {
    type Variant = Layout;

    fn variants(&self, _arch: Arch) -> Vec<Layout> {
        let writes = |n| self.out == Out::DenseAndInt8 && Self::writes(n, self.out) == self.out;
        Layout::all(self.n, self.out, self.x, |n| if writes(n) { rows(n, 128, 512) } else { Vec::new() })
    }

    fn source(&self, variant: Layout) -> Source {
        match variant {
            Layout::Threads(_) => source!("swiglu", "bwd.cu", "segment.cuh"),
            Layout::RotatedRows(_) => int8_source!("swiglu", "bwd.cu", "swiglu"),
        }
    }

    fn geometry(&self, variant: Layout, p: &Self::Params) -> Geometry {
        variant.geometry(self.x, p.tokens, p.n)
    }
}

impl Reference for SwigluBwd {
    fn examples() -> Vec<Self> {
        let dense = dense().map(|(gate, x)| Self { gate, n: None, out: Out::Dense, x });
        let int8 = [(Gate::Silu, 128), (Gate::Silu, 1536), (Gate::Silu, 4864), (Gate::GeluTanh, 128)];
        let int8 = int8.map(|(gate, n)| Self { gate, n: Some(n), out: Out::DenseAndInt8, x: Dtype::Bf16 });
        dense.chain(int8).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let params = |(tokens, n)| Self::Params { tokens, n, ..Default::default() };
        samples(self.n).into_iter().map(params).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, n) = typical(self.n, batch);
        Self::Params { tokens, n, ..Default::default() }
    }

    /// The exponential is approximate: a value rounded to the neighboring number moves its whole rotation block a
    /// little.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbors(operand)
    }
}
