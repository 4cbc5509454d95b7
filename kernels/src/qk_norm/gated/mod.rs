//! RMSNorm of each head of q and k, followed by the rotary embedding of a part of it, out of rows in which a gate of the
//! attention's output follows each query.
//!
//! A row of `packed` is `[q, gate]` of each query head, then k, then v; `qkv` has them as attention reads them. Element
//! i of the first `rotary / 2` is rotated with element `rotary / 2 + i`; elements behind `rotary` are not rotated. The
//! gate is read by `output_gate`.
//!
//! Source: Hugging Face's `Qwen3_5Attention`.

mod host;

pub use crate::abi::{QkNormGatedBwd, QkNormGatedDgrad, QkNormGatedFwd};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Gamma, Geometry, Reference, Source, Threads, one_variant};

/// (`d`, `gamma`, `rotary`, `x`)
const EXAMPLES: [(u32, Gamma, u32, Dtype); 3] =
    [(256, Gamma::OnePlus, 64, Dtype::Bf16), (32, Gamma::OnePlus, 8, Dtype::F32), (64, Gamma::Weight, 64, Dtype::Bf16)];

/// (`tokens`, `seq_len`, `query_heads`, `key_heads`, `eps`) of samples.
const SAMPLES: [(u32, u32, u32, u32, f32); 3] = [(1, 1, 1, 1, 1e-6), (15, 5, 4, 2, 1e-2), (11, 11, 3, 1, 1e-5)];

macro_rules! operation {
    ($kernel:ident, $host:ident, $file:literal $(, rows: [$few:literal, $many:literal])?) => {
        impl Build for $kernel {
            one_variant!(Threads { threads: 128 });

            fn source(&self, _variant: Threads) -> Source {
                Source {
                    path: concat!("qk_norm/gated/", $file),
                    text: include_str!($file),
                    headers: &[("qk_norm_gated.h", include_str!("../qk_norm_gated.h"))],
                    common: &crate::COMMON,
                }
            }

            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                Geometry::linear(p.tokens, variant.threads)
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
                let (tokens, seq_len, query_heads, key_heads) = (batch.tokens(), batch.seq_len, 8, 2);
                Self::Params {
                    tokens, seq_len, query_heads, key_heads, eps: 1e-6, $(rows: $many,)? ..Default::default()
                }
            }
        }
    };
}

operation!(QkNormGatedFwd, fwd, "fwd.cu");
operation!(QkNormGatedBwd, bwd, "bwd.cu", rows: [8, 32]);
operation!(QkNormGatedDgrad, dgrad, "dgrad.cu");
