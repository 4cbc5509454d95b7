//! RMSNorm of a token's queries and of its keys, each over all heads, followed by the rotary embedding.
//!
//! As the other operations of `qk_norm`, with the mean over all elements of a token's queries, or of its keys, and a
//! gamma for each of them.
//!
//! Source: "2 OLMo 2 Furious", 2025, as Hugging Face's `Olmo2Attention` has it.

mod host;

pub use crate::abi::{QkNormRowBwd, QkNormRowDgrad, QkNormRowFwd};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Gamma, Geometry, Reference, Source, Threads};

/// Elements of a thread: a pair of vectors in bf16.
const SHARE: u32 = 16;

/// Widest queries that a CTA has registers for.
const MOST_COLUMNS: u32 = 8192;

/// True if the operations have a variant for queries of this width, elements of a token.
pub fn supports(width: u32) -> bool {
    width <= MOST_COLUMNS
}

/// Returns the CTA whose threads share the queries of a token; none if these are too wide.
fn threads(d: u32, heads: u32) -> Vec<Threads> {
    let width = d.saturating_mul(heads);
    let threads = (width / SHARE).next_power_of_two().max(32);
    if supports(width) { vec![Threads { threads }] } else { Vec::new() }
}

/// (`d`, `gamma`, `heads`, `keep`, `x`): in f32 a thread has several pairs of vectors.
const EXAMPLES: [(u32, Gamma, u32, bool, Dtype); 3] = [
    (48, Gamma::Weight, 3, true, Dtype::Bf16),
    (80, Gamma::OnePlus, 6, false, Dtype::F32),
    (128, Gamma::Weight, 40, true, Dtype::Bf16),
];

/// (`tokens`, `seq_len`, `key_heads`, `row_heads`, `eps`) of samples.
fn samples(heads: u32) -> [(u32, u32, u32, u32, f32); 3] {
    [(1, 1, heads, 3 * heads, 1e-6), (15, 5, 1, heads + 2, 1e-2), (11, 11, heads.div_ceil(2), 2 * heads, 1e-5)]
}

/// Implements an operation: its rows of CTAs, a key of an example, and the tokens of a partial sum, few and many.
macro_rules! operation {
    (
        $kernel:ident, $host:ident, $file:literal, $rows_of_ctas:expr, $key:expr
        $(, rows: [$few:literal, $many:literal])?
    ) => {
        impl Build for $kernel {
            type Variant = Threads;

            fn variants(&self, _arch: Arch) -> Vec<Threads> {
                threads(self.d, self.heads)
            }

            fn source(&self, _variant: Threads) -> Source {
                Source {
                    path: concat!("qk_norm/row/", $file),
                    text: include_str!($file),
                    headers: &[
                        ("qk_norm_row.h", include_str!("../qk_norm_row.h")),
                        ("qk_norm/head.cuh", include_str!("../head.cuh")),
                        ("qk_norm/row/part.cuh", include_str!("part.cuh")),
                    ],
                    common: &crate::COMMON,
                }
            }

            /// CTAs for queries and for keys.
            fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
                let rows_of_ctas: fn(&Self::Params) -> u32 = $rows_of_ctas;
                Geometry { grid: [rows_of_ctas(p), 2, 1], ..Geometry::linear(1, variant.threads) }
            }
        }

        impl Reference for $kernel {
            fn examples() -> Vec<Self> {
                EXAMPLES.map($key).into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                host::$host(*self, p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                let of = |(tokens, seq_len, key_heads, row_heads, eps)| {
                    Self::Params { tokens, seq_len, key_heads, row_heads, eps, $(rows: $few,)? ..Default::default() }
                };
                samples(self.heads).map(of).into()
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                let (tokens, seq_len) = (batch.tokens(), batch.seq_len);
                let (key_heads, row_heads) = (self.heads, 3 * self.heads);
                Self::Params { tokens, seq_len, key_heads, row_heads, eps: 1e-6, $(rows: $many,)? ..Default::default() }
            }
        }
    };
}

operation!(QkNormRowFwd, fwd, "fwd.cu", |p| p.tokens, |(d, gamma, heads, keep, x)| Self { d, gamma, heads, keep, x });
operation!(
    QkNormRowBwd, bwd, "bwd.cu", |p| p.tokens.div_ceil(p.rows), |(d, gamma, heads, _, x)| Self { d, gamma, heads, x },
    rows: [8, 32]
);
operation!(QkNormRowDgrad, dgrad, "dgrad.cu", |p| p.tokens, |(d, gamma, heads, _, x)| Self { d, gamma, heads, x });
