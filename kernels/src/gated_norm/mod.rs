//! RMSNorm of each head, times its gate's SiLU.
//!
//! `y = gamma round(x rstd) silu(z)` with `rstd = 1 / sqrt(mean(x^2) + eps)`: the normalized head is rounded to dtype x
//! before gamma multiplies it. Backward, with `n = x rstd` and `u = dy silu(z)`: `dz = dy gamma n silu'(z)`,
//! `dgamma = sum u n`, `dx = rstd (gamma u - n mean(gamma u n))`.
//!
//! Source: Hugging Face's `Qwen3_5RMSNormGated`.

mod host;

pub use crate::abi::{GatedNormBwd, GatedNormDgrad, GatedNormFwd};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Reference, Source, Threads, one_variant, source};

/// (tokens, heads, elements of a row of gates behind and before those of heads, eps)
const SAMPLES: [(u32, u32, u32, u32, f32); 4] =
    [(1, 1, 0, 0, 1e-6), (19, 3, 8, 16, 1e-2), (33, 4, 0, 32, 1e-5), (11, 17, 3, 5, 1e-6)];

/// Implements an operation: its threads, its CTAs for parameters and heads that a CTA takes at a time, and the tokens
/// of a partial sum, few and many.
macro_rules! operation {
    (
        $kernel:ident, $host:ident, $file:literal $(, $header:literal)?; $threads:literal, $ctas:expr
        $(, rows: [$few:literal, $many:literal])?
    ) => {
        impl Build for $kernel {
            one_variant!(Threads { threads: $threads });

            fn source(&self, _variant: Threads) -> Source {
                source!("gated_norm", $file, "head.cuh" $(, $header)?)
            }

            /// A lane for each vector of a head, rounded up to a power of two.
            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                let lanes = (self.d / self.x.vector_width(self.d)).next_power_of_two();
                let ctas: fn(&Self::Params, u32) -> u32 = $ctas;
                Geometry::linear(ctas(p, variant.threads / lanes), variant.threads)
            }
        }

        impl Reference for $kernel {
            fn examples() -> Vec<Self> {
                [(128, Dtype::Bf16), (128, Dtype::F32)].map(|(d, x)| Self { d, x }).into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                host::$host(*self, p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                let of = |(tokens, heads, behind, column, eps)| {
                    let gate_columns = column + heads * self.d + behind;
                    Self::Params { tokens, heads, gate_columns, column, eps, $(rows: $few,)? ..Default::default() }
                };
                SAMPLES.map(of).into()
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                let (tokens, heads, column) = (batch.tokens(), 16, 6144);
                let gate_columns = column + heads * self.d + 32;
                Self::Params { tokens, heads, gate_columns, column, eps: 1e-6, $(rows: $many,)? ..Default::default() }
            }
        }
    };
}

operation!(GatedNormFwd, fwd, "fwd.cu"; 256, |p, heads| (p.tokens * p.heads).div_ceil(heads));
operation!(GatedNormBwd, bwd, "bwd.cu", "gradient.cuh"; 256, |p, _| p.tokens.div_ceil(p.rows), rows: [8, 32]);
operation!(GatedNormDgrad, dgrad, "dgrad.cu", "gradient.cuh"; 256, |p, heads| (p.tokens * p.heads).div_ceil(heads));
