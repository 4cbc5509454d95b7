//! RMSNorm behind a branch of the residual stream, and of the stream with the branch.
//!
//! `sum = x + rmsnorm(branch; gamma)`, and with `next` also `y = rmsnorm(sum; next_gamma)`: the bits of `rmsnorm.fwd`,
//! `scale` by 1 and `rmsnorm.fwd`, whose layouts of rows and formats of y these are. What it adds is rounded to the
//! dtype `x` before, and `sum` before it is normalized. Gradients are those of `rmsnorm`. Source: Gemma 3, OLMo 2.

mod host;

pub use crate::abi::PostNormFwd;
use crate::host::Views;
use crate::int8::{int8_source, neighbors};
use crate::rmsnorm::{Layout, RmsnormFwd};
use crate::{Arch, Batch, Build, Dtype, Gamma, Geometry, Operand, Out, Reference, Source, Tolerance};

impl Build for PostNormFwd {
    type Variant = Layout;

    fn variants(&self, arch: Arch) -> Vec<Layout> {
        let Self { gamma, h, next, out, x } = *self;
        if next || out == Out::Dense { RmsnormFwd { gamma, h, out, residual: true, x }.variants(arch) } else { vec![] }
    }

    fn source(&self, variant: Layout) -> Source {
        match variant {
            Layout::PlainRows(_) => Source {
                path: "post_norm/fwd.cu",
                text: include_str!("fwd.cu"),
                headers: &[
                    ("post_norm.h", include_str!("post_norm.h")),
                    ("rmsnorm/row.cuh", include_str!("../rmsnorm/row.cuh")),
                    ("post_norm/fwd.cuh", include_str!("fwd.cuh")),
                ],
                common: &crate::COMMON,
            },
            Layout::RotatedRows(_) => int8_source!("post_norm", "fwd.cu", "post_norm", "fwd.cuh"),
        }
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
