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

/// Returns the CTA whose threads share the queries of a token; none if these are too wide.
fn threads(d: u32, heads: u32) -> Vec<Threads> {
    let width = d.saturating_mul(heads);
    let threads = (width / SHARE).next_power_of_two().max(32);
    if width <= MOST_COLUMNS { vec![Threads { threads }] } else { Vec::new() }
}

/// Returns a grid of CTAs for queries and for keys.
fn queries_and_keys(variant: Threads, rows: u32) -> Geometry {
    Geometry { grid: [rows, 2, 1], ..Geometry::linear(1, variant.threads) }
}

macro_rules! row_source {
    ($file:literal) => {
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
    };
}

/// (`d`, `gamma`, `heads`, `x`): in f32 a thread has several pairs of vectors.
const EXAMPLES: [(u32, Gamma, u32, Dtype); 3] =
    [(48, Gamma::Weight, 3, Dtype::Bf16), (80, Gamma::OnePlus, 6, Dtype::F32), (128, Gamma::Weight, 40, Dtype::Bf16)];

/// (`tokens`, `seq_len`, `key_heads`, `row_heads`, `eps`) of samples.
fn samples(heads: u32) -> [(u32, u32, u32, u32, f32); 3] {
    [(1, 1, heads, 3 * heads, 1e-6), (15, 5, 1, heads + 2, 1e-2), (11, 11, heads.div_ceil(2), 2 * heads, 1e-5)]
}

impl Build for QkNormRowFwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        threads(self.d, self.heads)
    }

    fn source(&self, _variant: Threads) -> Source {
        row_source!("fwd.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        queries_and_keys(variant, p.tokens)
    }
}

impl Reference for QkNormRowFwd {
    fn examples() -> Vec<Self> {
        let examples = EXAMPLES.into_iter().zip([true, false, true]);
        examples.map(|((d, gamma, heads, x), keep)| Self { d, gamma, heads, keep, x }).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let of = |(tokens, seq_len, key_heads, row_heads, eps)| Self::Params {
            tokens,
            seq_len,
            key_heads,
            row_heads,
            eps,
            ..Default::default()
        };
        samples(self.heads).map(of).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, seq_len, key_heads, row_heads) = (batch.tokens(), batch.seq_len, self.heads, 3 * self.heads);
        Self::Params { tokens, seq_len, key_heads, row_heads, eps: 1e-6, ..Default::default() }
    }
}

impl Build for QkNormRowBwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        threads(self.d, self.heads)
    }

    fn source(&self, _variant: Threads) -> Source {
        row_source!("bwd.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        queries_and_keys(variant, p.tokens.div_ceil(p.rows))
    }
}

impl Reference for QkNormRowBwd {
    fn examples() -> Vec<Self> {
        EXAMPLES.map(|(d, gamma, heads, x)| Self { d, gamma, heads, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let of = |(tokens, seq_len, key_heads, row_heads, eps)| Self::Params {
            tokens,
            seq_len,
            key_heads,
            row_heads,
            eps,
            rows: 8,
            ..Default::default()
        };
        samples(self.heads).map(of).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, seq_len, key_heads, row_heads) = (batch.tokens(), batch.seq_len, self.heads, 3 * self.heads);
        Self::Params { tokens, seq_len, key_heads, row_heads, eps: 1e-6, rows: 32, ..Default::default() }
    }
}

impl Build for QkNormRowDgrad {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        threads(self.d, self.heads)
    }

    fn source(&self, _variant: Threads) -> Source {
        row_source!("dgrad.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        queries_and_keys(variant, p.tokens)
    }
}

impl Reference for QkNormRowDgrad {
    fn examples() -> Vec<Self> {
        EXAMPLES.map(|(d, gamma, heads, x)| Self { d, gamma, heads, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::dgrad(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let of = |(tokens, seq_len, key_heads, row_heads, eps)| Self::Params {
            tokens,
            seq_len,
            key_heads,
            row_heads,
            eps,
            ..Default::default()
        };
        samples(self.heads).map(of).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, seq_len, key_heads, row_heads) = (batch.tokens(), batch.seq_len, self.heads, 3 * self.heads);
        Self::Params { tokens, seq_len, key_heads, row_heads, eps: 1e-6, ..Default::default() }
    }
}
