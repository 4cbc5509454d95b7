//! SwiGLU: the gated activation of the MLP.
//!
//! Forward: `y = gate * sigmoid(gate) * up`. Backward, with `s = sigmoid(gate)`:
//! `dgate = dy * up * s * (1 + gate * (1 - s))`, `dup = dy * gate * s`.
//!
//! | operand | shape | dtype |
//! | --- | --- | --- |
//! | `gate_up`, `dgate_up` | tokens x 2n: gate, then up | x |
//! | `y`, `dy` | tokens x n | x |
//!
//! Source: Shazeer, "GLU Variants Improve Transformer", 2020.

mod host;

use crate::abi::{swiglu_bwd_params, swiglu_fwd_params};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Kernel, Operand, Reference, Source, Threads, key, operand, source};

key! {
    /// Gate the up projection.
    pub struct SwigluFwd = "swiglu.fwd" { x: Dtype }
}

key! {
    /// Gradients of gate and up.
    pub struct SwigluBwd = "swiglu.bwd" { x: Dtype }
}

/// As many CTAs a token as give each thread one vector, up to 64.
fn geometry(x: Dtype, threads: u32, tokens: u32, n: u32) -> Geometry {
    let segments = (n / x.vector_width(n)).div_ceil(threads).min(64);
    Geometry::linear(tokens * segments, threads)
}

impl Kernel for SwigluFwd {
    type Params = swiglu_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, n) = (u64::from(p.tokens), u64::from(p.n));
        vec![
            operand!(Read Self::Params, gate_up: self.x, tokens * 2 * n),
            operand!(Write Self::Params, y: self.x, tokens * n),
        ]
    }
}

impl Build for SwigluFwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 128 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("swiglu", "fwd.cu", "segment.cuh")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        geometry(self.x, variant.threads, p.tokens, p.n)
    }
}

impl Reference for SwigluFwd {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1), (5, 259), (3, 128), (2, 2056), (2, 8201)]
            .map(|(tokens, n)| Self::Params { tokens, n, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), n: Batch::WIDTH, ..Default::default() }
    }
}

impl Kernel for SwigluBwd {
    type Params = swiglu_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, n) = (u64::from(p.tokens), u64::from(p.n));
        vec![
            operand!(Read Self::Params, gate_up: self.x, tokens * 2 * n),
            operand!(Read Self::Params, dy: self.x, tokens * n),
            operand!(Write Self::Params, dgate_up: self.x, tokens * 2 * n),
        ]
    }
}

impl Build for SwigluBwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 128 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("swiglu", "bwd.cu", "segment.cuh")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        geometry(self.x, variant.threads, p.tokens, p.n)
    }
}

impl Reference for SwigluBwd {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1), (5, 259), (3, 128), (2, 2056), (2, 8201)]
            .map(|(tokens, n)| Self::Params { tokens, n, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), n: Batch::WIDTH, ..Default::default() }
    }
}
