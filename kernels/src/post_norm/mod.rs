//! RMSNorm behind a branch of the residual stream, and of the stream with the branch.
//!
//! `sum = x + rmsnorm(branch; gamma)`, and with `next` also `y = rmsnorm(sum; next_gamma)`: the bits of `rmsnorm.fwd`,
//! `scale` by 1 and `rmsnorm.fwd`, whose layouts of rows and formats of y these are. What it adds is rounded to the
//! dtype `x` before, and `sum` before it is normalized. Backward, with `next`: `dx = dresidual +` the gradient of the
//! sum's norm, rounded, `dbranch =` the gradient of dx through the branch's, as of `rmsnorm.bwd` twice. Other gradients
//! are those of `rmsnorm` alone. Source: Gemma 3, OLMo 2.

mod host;

use crate::abi::rmsnorm_bwd_params;
pub use crate::abi::{PostNormBwd, PostNormFwd};
use crate::host::Views;
use crate::int8::{int8_source, neighbors};
use crate::rmsnorm::{Layout, RmsnormBwd, RmsnormFwd};
use crate::{Arch, Batch, Build, Dtype, Gamma, Geometry, Operand, Out, Reference, Source, Tolerance};

/// Declares the source of a pass in both layouts.
macro_rules! post_norm_source {
    ($variant:expr, $file:literal, $abi:literal, $header:literal) => {
        match $variant {
            Layout::PlainRows(_) => Source {
                path: concat!("post_norm/", $file),
                text: include_str!($file),
                headers: &[
                    (concat!($abi, ".h"), include_str!(concat!($abi, ".h"))),
                    ("rmsnorm/row.cuh", include_str!("../rmsnorm/row.cuh")),
                    (concat!("post_norm/", $header), include_str!($header)),
                ],
                common: &crate::COMMON,
            },
            Layout::RotatedRows(_) => int8_source!("post_norm", $file, $abi, $header),
        }
    };
}

impl Build for PostNormFwd {
    type Variant = Layout;

    fn variants(&self, arch: Arch) -> Vec<Layout> {
        let Self { gamma, h, next, out, x } = *self;
        if next || out == Out::Dense { RmsnormFwd { gamma, h, out, residual: true, x }.variants(arch) } else { vec![] }
    }

    fn source(&self, variant: Layout) -> Source {
        post_norm_source!(variant, "fwd.cu", "post_norm", "fwd.cuh")
    }

    fn geometry(&self, variant: Layout, p: &Self::Params) -> Geometry {
        variant.geometry(p.tokens)
    }
}

impl Reference for PostNormFwd {
    fn examples() -> Vec<Self> {
        let (bf16, f32) = (Dtype::Bf16, Dtype::F32);
        let dense = [(33, bf16), (40, bf16), (300, f32), (1100, f32), (3840, bf16)];
        let dense = dense.into_iter().flat_map(|(h, x)| [false, true].map(|next| (h, next, Out::Dense, x)));
        let int8 = [48, 272, 896, 3840].into_iter();
        let int8 = int8.flat_map(|h| [Out::DenseAndInt8, Out::Int8].map(|out| (h, true, out, bf16)));
        let key = |gamma| move |(h, next, out, x)| Self { gamma, h, next, out, x };
        let one_plus = [(40, false, Out::Dense, bf16), (300, true, Out::Dense, f32), (96, true, Out::Int8, bf16)];
        dense.chain(int8).map(key(Gamma::Weight)).chain(one_plus.map(key(Gamma::OnePlus))).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1e-6), (19, 1e-2)].map(|(tokens, eps)| Self::Params { tokens, eps, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), eps: 1e-6, ..Default::default() }
    }

    /// The sum over a row has another order, so single values may fall to the neighboring integer.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbors(operand)
    }
}

impl PostNormBwd {
    /// True if threads have registers for both norms of rows of h.
    pub fn fits(h: u32, x: Dtype) -> bool {
        h <= if x == Dtype::F32 { 3072 } else { 4096 }
    }
}

impl Build for PostNormBwd {
    type Variant = Layout;

    fn variants(&self, arch: Arch) -> Vec<Layout> {
        let Self { gamma, h, out, x } = *self;
        if Self::fits(h, x) { RmsnormBwd { gamma, h, out, residual: true, x }.variants(arch) } else { vec![] }
    }

    fn source(&self, variant: Layout) -> Source {
        post_norm_source!(variant, "bwd.cu", "post_norm_bwd", "bwd.cuh")
    }

    fn geometry(&self, variant: Layout, p: &Self::Params) -> Geometry {
        let Self { gamma, h, out, x } = *self;
        let params = rmsnorm_bwd_params { tokens: p.tokens, rows: p.rows, ..Default::default() };
        RmsnormBwd { gamma, h, out, residual: true, x }.geometry(variant, &params)
    }
}

impl Reference for PostNormBwd {
    fn examples() -> Vec<Self> {
        let (bf16, f32, dense, int8) = (Dtype::Bf16, Dtype::F32, Out::Dense, Out::DenseAndInt8);
        let keys = [(40, dense, bf16), (300, dense, f32), (33, dense, bf16), (2560, dense, f32), (3840, dense, bf16)];
        let rotated = [48, 272, 1152, 3840].map(|h| (h, int8, bf16));
        let one_plus = [(40, dense, bf16), (300, dense, f32), (96, int8, bf16)];
        let key = |gamma| move |(h, out, x)| Self { gamma, h, out, x };
        keys.into_iter().chain(rotated).map(key(Gamma::Weight)).chain(one_plus.map(key(Gamma::OnePlus))).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 8), (19, 8), (45, 32)].map(|(tokens, rows)| Self::Params { tokens, rows, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), rows: 32, ..Default::default() }
    }

    /// As of `post_norm.fwd`; and what dx sums up to has its rounding.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        if operand.name == "dgamma_partial" { Tolerance::of(self.x.into()) } else { neighbors(operand) }
    }
}
