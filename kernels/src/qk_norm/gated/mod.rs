//! RMSNorm of each head of q and k, followed by the rotary embedding of a part of it, out of rows in which a gate of
//! the attention's output follows each query.
//!
//! A row of `packed` is `[q, gate]` of each query head, then k, then v; `qkv` has them as attention reads them. Element
//! i of the first `rotary / 2` is rotated with element `rotary / 2 + i`; elements behind `rotary` are not rotated. The
//! gate is read by `output_gate`.
//!
//! Source: Hugging Face's `Qwen3_5Attention`.

mod host;

pub use crate::abi::{QkNormGatedBwd, QkNormGatedDgrad, QkNormGatedFwd};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Gamma, Geometry, Reference, Source, Threads};

/// (`d`, `gamma`, `rotary`, `x`): in bf16 the half of 8 is no whole vector.
const EXAMPLES: [(u32, Gamma, u32, Dtype); 4] = [
    (256, Gamma::OnePlus, 64, Dtype::Bf16),
    (32, Gamma::OnePlus, 8, Dtype::F32),
    (64, Gamma::Weight, 64, Dtype::Bf16),
    (32, Gamma::OnePlus, 8, Dtype::Bf16),
];

/// (`tokens`, `seq_len`, `query_heads`, `key_heads`, `eps`) of samples.
const SAMPLES: [(u32, u32, u32, u32, f32); 4] =
    [(1, 1, 1, 1, 1e-6), (15, 5, 4, 2, 1e-2), (11, 11, 3, 1, 1e-5), (9, 9, 20, 5, 1e-6)];

/// Lanes of a warp, which share a head.
const WARP: u32 = 32;

/// Returns the lanes that share a head: one for each pair of vectors, rounded up to a power of two.
fn lanes(d: u32, rotary: u32, x: Dtype) -> u32 {
    let width = x.vector_width(d / 2).min(x.vector_width(rotary / 2));
    (d / 2 / width).next_power_of_two()
}

/// True if the operations have variants for heads of d elements of which `rotary` are rotated, in either dtype.
pub fn supports(d: u32, rotary: u32) -> bool {
    [Dtype::Bf16, Dtype::F32].into_iter().all(|x| lanes(d, rotary, x) <= WARP)
}

/// Implements an operation: its threads, its CTAs along x and y for parameters and heads that a CTA takes at a time,
/// and the tokens of a partial sum, few and many.
macro_rules! operation {
    (
        $kernel:ident, $host:ident, $file:literal; $threads:literal, $ctas:expr
        $(, rows: [$few:literal, $many:literal])?
    ) => {
        impl Build for $kernel {
            type Variant = Threads;

            fn variants(&self, _arch: Arch) -> Vec<Threads> {
                let fits = lanes(self.d, self.rotary, self.x) <= WARP;
                if fits { vec![Threads { threads: $threads }] } else { Vec::new() }
            }

            fn source(&self, _variant: Threads) -> Source {
                Source {
                    path: concat!("qk_norm/gated/", $file),
                    text: include_str!($file),
                    headers: &[
                        ("qk_norm_gated.h", include_str!("../qk_norm_gated.h")),
                        ("qk_norm/gated/head.cuh", include_str!("head.cuh")),
                        ("qk_norm/gated/gradient.cuh", include_str!("gradient.cuh")),
                    ],
                    common: &crate::COMMON,
                }
            }

            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                let ctas: fn(&Self::Params, u32) -> [u32; 2] = $ctas;
                let [x, y] = ctas(p, variant.threads / lanes(self.d, self.rotary, self.x));
                Geometry { grid: [x, y, 1], ..Geometry::linear(1, variant.threads) }
            }
        }

        impl Reference for $kernel {
            fn examples() -> Vec<Self> {
                EXAMPLES.map(|(d, gamma, rotary, x)| Self { d, gamma, rotary, x }).into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                host::$host(*self, p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                let of = |(tokens, seq_len, query_heads, key_heads, eps)| {
                    Self::Params { tokens, seq_len, query_heads, key_heads, eps, $(rows: $few,)? ..Default::default() }
                };
                SAMPLES.map(of).into()
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                let key_heads = (Batch::WIDTH / 4 / self.d).max(1);
                let (tokens, seq_len, query_heads) = (batch.tokens(), batch.seq_len, 4 * key_heads);
                Self::Params {
                    tokens, seq_len, query_heads, key_heads, eps: 1e-6, $(rows: $many,)? ..Default::default()
                }
            }
        }
    };
}

operation!(QkNormGatedFwd, fwd, "fwd.cu"; 256, |p, heads| {
    [(p.tokens * (p.query_heads + 2 * p.key_heads)).div_ceil(heads), 1]
});
operation!(QkNormGatedBwd, bwd, "bwd.cu"; 256, |p, _| [p.tokens.div_ceil(p.rows), 2], rows: [8, 32]);
operation!(QkNormGatedDgrad, dgrad, "dgrad.cu"; 256, |p, heads| {
    [(p.tokens * (p.query_heads + 2 * p.key_heads)).div_ceil(heads), 1]
});
