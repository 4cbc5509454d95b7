//! RMSNorm of each query and key head, followed by the rotary embedding, in one pass over queries and keys.
//!
//! Forward, for a head `x` of d elements: `rstd = 1 / sqrt(mean(x^2) + eps)`, `y = gamma * x * rstd`, with a gamma for
//! queries and one for keys; then `y` is rotated as by `rope.fwd`, without rounding between. `keep` writes the
//! unmodified heads to `raw`: the backward pass normalizes them again and needs nothing else. Backward, with the
//! gradient `dy` rotated back, `g = gamma * dy` and `n = x * rstd`: `dx = rstd * (g - n * mean(g * n))`,
//! `dgamma = sum over tokens and heads of dy * n`, left as one partial sum of each gamma for each group of `rows`
//! tokens; `column_sum.finish` adds them up. `qk_norm.dgrad` is `dx` alone, for frozen gammas.
//! With `gamma=1+w` gammas are one plus the weights that are read; the gradients are the same.
//!
//! [`row`] has the norm over all heads.
//!
//! Source: "Qwen3 Technical Report", 2025, as Hugging Face's `Qwen3Attention` has it.

pub mod gated;
mod host;
pub mod row;

pub use crate::abi::{QkNormBwd, QkNormDgrad, QkNormFwd};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Gamma, Geometry, Reference, Source, Threads, one_variant, source, variant};

variant! {
    /// A thread takes its elements of `heads` neighboring heads.
    pub struct Heads {
        /// Heads of a token per thread.
        heads: u32,
        threads: u32,
    }
}

/// Returns the lanes that share a head: one for each vector of half of it, rounded up to a power of two.
fn lanes(d: u32, x: Dtype) -> u32 {
    (d / 2 / x.vector_width(d / 2)).next_power_of_two()
}

/// Returns a grid with `lanes` lanes per item, which strides beyond a limit.
fn strided(variant: Heads, lanes: u32, tokens: u32, heads: u32) -> Geometry {
    let items = u64::from(tokens) * u64::from(heads.div_ceil(variant.heads));
    let groups = u64::from(variant.threads / lanes);
    Geometry::linear(items.div_ceil(groups).min(1 << 20) as u32, variant.threads)
}

/// Heads of queries, of keys, and of a row with the values, in a large model.
fn heads(d: u32) -> [u32; 3] {
    let keys = (Batch::WIDTH / 4 / d).max(1);
    [4 * keys, keys, 6 * keys]
}

/// Examples where heads are multiplied by one plus the weight, with the widest heads.
const ONE_PLUS: [(u32, Dtype); 2] = [(256, Dtype::Bf16), (256, Dtype::F32)];

impl Build for QkNormFwd {
    one_variant!(Heads { heads: 4, threads: 128 });

    fn source(&self, _variant: Heads) -> Source {
        source!("qk_norm", "fwd.cu", "head.cuh", "groups.cuh")
    }

    fn geometry(&self, variant: Heads, p: &Self::Params) -> Geometry {
        strided(variant, lanes(self.d, self.x), p.tokens, p.query_heads + p.key_heads)
    }
}

impl Reference for QkNormFwd {
    fn examples() -> Vec<Self> {
        let plain = [(64, true, Dtype::Bf16), (80, false, Dtype::F32), (256, true, Dtype::F32)];
        let plain = plain.map(|(d, keep, x)| Self { d, gamma: Gamma::Weight, keep, x });
        let one_plus = ONE_PLUS.map(|(d, x)| Self { d, gamma: Gamma::OnePlus, keep: true, x });
        plain.into_iter().chain(one_plus).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1, 1, 1, 2, 1e-6), (15, 5, 3, 1, 6, 1e-2), (7, 4, 6, 2, 8, 1e-5)]
            .map(|(tokens, seq_len, query_heads, key_heads, row_heads, eps)| Self::Params {
                tokens,
                seq_len,
                query_heads,
                key_heads,
                row_heads,
                eps,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, seq_len, [query_heads, key_heads, row_heads]) = (batch.tokens(), batch.seq_len, heads(self.d));
        Self::Params { tokens, seq_len, query_heads, key_heads, row_heads, eps: 1e-6, ..Default::default() }
    }
}

impl Build for QkNormBwd {
    one_variant!(Threads { threads: 256 });

    fn source(&self, _variant: Threads) -> Source {
        source!("qk_norm", "bwd.cu", "head.cuh")
    }

    /// A CTA for the queries and one for the keys of each partial.
    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry { grid: [p.tokens.div_ceil(p.rows), 2, 1], ..Geometry::linear(1, variant.threads) }
    }
}

impl Reference for QkNormBwd {
    fn examples() -> Vec<Self> {
        let plain =
            [(48, Dtype::Bf16), (128, Dtype::F32), (256, Dtype::F32)].map(|(d, x)| Self { d, gamma: Gamma::Weight, x });
        plain.into_iter().chain(ONE_PLUS.map(|(d, x)| Self { d, gamma: Gamma::OnePlus, x })).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1, 1, 1, 2, 8, 1e-6), (19, 5, 3, 1, 6, 8, 1e-2), (45, 45, 10, 2, 14, 32, 1e-5)]
            .map(|(tokens, seq_len, query_heads, key_heads, row_heads, rows, eps)| Self::Params {
                tokens,
                seq_len,
                query_heads,
                key_heads,
                row_heads,
                rows,
                eps,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, seq_len, [query_heads, key_heads, row_heads]) = (batch.tokens(), batch.seq_len, heads(self.d));
        Self::Params { tokens, seq_len, query_heads, key_heads, row_heads, eps: 1e-6, rows: 32, ..Default::default() }
    }
}

impl Build for QkNormDgrad {
    one_variant!(Heads { heads: 2, threads: 128 });

    fn source(&self, _variant: Heads) -> Source {
        // A header of its own: other users of `qk_norm.h` do not depend on it.
        Source {
            path: "qk_norm/dgrad.cu",
            text: include_str!("dgrad.cu"),
            headers: &[
                ("qk_norm/groups.cuh", include_str!("groups.cuh")),
                ("qk_norm_dgrad.h", include_str!("qk_norm_dgrad.h")),
                ("qk_norm/head.cuh", include_str!("head.cuh")),
            ],
            common: &crate::COMMON,
        }
    }

    fn geometry(&self, variant: Heads, p: &Self::Params) -> Geometry {
        strided(variant, lanes(self.d, self.x), p.tokens, p.query_heads + p.key_heads)
    }
}

impl Reference for QkNormDgrad {
    fn examples() -> Vec<Self> {
        let plain =
            [(48, Dtype::Bf16), (128, Dtype::F32), (256, Dtype::F32)].map(|(d, x)| Self { d, gamma: Gamma::Weight, x });
        plain.into_iter().chain(ONE_PLUS.map(|(d, x)| Self { d, gamma: Gamma::OnePlus, x })).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::dgrad(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1, 1, 1, 2, 1e-6), (19, 5, 3, 1, 6, 1e-2), (45, 45, 10, 2, 14, 1e-5)]
            .map(|(tokens, seq_len, query_heads, key_heads, row_heads, eps)| Self::Params {
                tokens,
                seq_len,
                query_heads,
                key_heads,
                row_heads,
                eps,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, seq_len, [query_heads, key_heads, row_heads]) = (batch.tokens(), batch.seq_len, heads(self.d));
        Self::Params { tokens, seq_len, query_heads, key_heads, row_heads, eps: 1e-6, ..Default::default() }
    }
}
