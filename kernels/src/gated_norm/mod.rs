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
const SAMPLES: [(u32, u32, u32, u32, f32); 3] = [(1, 1, 0, 0, 1e-6), (19, 3, 8, 16, 1e-2), (33, 4, 0, 32, 1e-5)];

macro_rules! operation {
    ($kernel:ident, $host:ident, $file:literal $(, rows: [$few:literal, $many:literal])?) => {
        impl Build for $kernel {
            one_variant!(Threads { threads: 128 });

            fn source(&self, _variant: Threads) -> Source {
                source!("gated_norm", $file)
            }

            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                Geometry::linear(p.tokens, variant.threads)
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

operation!(GatedNormFwd, fwd, "fwd.cu");
operation!(GatedNormBwd, bwd, "bwd.cu", rows: [8, 32]);
operation!(GatedNormDgrad, dgrad, "dgrad.cu");
