//! Causal grouped-query attention, forward and backward, without an S x S buffer in device memory.
//!
//! Tokens are those of sequences that lie end to end, and see their own sequence alone: a tile is one of a sequence,
//! and what lies behind it is neither multiplied nor written. So a sequence has the bits that it has alone.
//!
//! With query head h reading key/value head `h / (heads / kv_heads)`, scores `s = scale * q k^T` over the keys up to
//! the query's own position, and of these the last `window` if the key has one:
//! forward `p = softmax(s)`, `o = p v`, `lse = log sum exp s`;
//! backward `delta = rowsum(o * do)`, `dv = p^T do`, `ds = p * (do v^T - delta)`,
//! `dq = scale * ds k`, `dk = scale * ds^T q`, keys and values summed over the query heads of their group.
//!
//! `attention.decode` attends from single rows to keys and values in a pool ([`crate::kv`]), with the bits of the
//! forward pass.
//!
//! d is a multiple of 16 up to 128, or 256. Roundings inside: `p` before `p v` and before `p^T do`, and `ds` before
//! both of its GEMMs, each to dtype x, as tensor cores need them.
//!
//! bf16 keys multiply on tensor cores: `mma` everywhere, warpgroup GEMMs (`wgmma`) on Hopper for d 64, 128 and 256; f32
//! keys on CUDA cores. Every element of every gradient is summed by one CTA in one order: no atomics, no workspace.
//! Sources: Dao et al., "FlashAttention-2", 2023; Ainslie et al., "GQA", 2023.

mod decode;
mod host;
mod variants;

pub use crate::abi::{AttentionBwd, AttentionDecode, AttentionDelta, AttentionFwd};
use crate::abi::{attention_bwd_params, attention_fwd_params};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Format, Geometry, Operand, Reference, Source, Threads, Tolerance, source};

/// True if the kernels support this head dimension.
pub fn supports(d: u32) -> bool {
    d == 256 || d > 0 && d <= 128 && d.is_multiple_of(16)
}

/// Returns the keys that two queries of a sequence of so many tokens see on average.
fn seen(seq_len: u32, window: Option<u32>) -> u64 {
    let seq_len = u64::from(seq_len);
    let window = window.map_or(seq_len, |window| seq_len.min(window.into()));
    window * (2 * seq_len + 1 - window) / seq_len.max(1)
}

/// Small and ragged (tokens, sequences at most, tokens of each at most, heads, kv_heads): a single token, grouped,
/// ungrouped, full sequences, more tiles than stages, more sequences than a warp has lanes.
const SAMPLES: [(u32, u32, u32, u32, u32); 6] = [
    (1, 1, 1, 1, 1),
    (66, 5, 33, 2, 1),
    (70, 2, 70, 3, 3),
    (194, 2, 97, 6, 2),
    (260, 1, 260, 3, 1),
    (150, 70, 90, 2, 1),
];

/// Key/value heads of a large model, with four query heads each.
fn kv_heads(d: u32) -> u32 {
    (Batch::WIDTH / 4 / d).max(1)
}

/// Samples of forward and backward, whose parameter blocks share sizes and scale: one that does not follow from d, so
/// that it shows if it is not read.
macro_rules! samples {
    ($key:expr) => {{
        let scale = 0.8 / ($key.d as f32).sqrt();
        // Wide heads in f32 have small tiles, and are slow to check.
        let most = if $key.d > 128 && $key.x == Dtype::F32 { 4 } else { SAMPLES.len() };
        let sample = |(tokens, count, seq_len, heads, kv_heads)| Self::Params {
            tokens,
            count,
            seq_len,
            heads,
            kv_heads,
            scale,
            ..Default::default()
        };
        SAMPLES.into_iter().take(most).map(sample).collect()
    }};
}

impl AttentionFwd {
    /// Returns the keys that two queries see on average.
    pub(crate) fn seen(&self, p: &attention_fwd_params) -> u64 {
        seen(p.seq_len, self.window)
    }
}

impl Build for AttentionFwd {
    type Variant = variants::Fwd;

    fn source(&self, variant: variants::Fwd) -> Source {
        variants::fwd_source(variant)
    }

    fn variants(&self, arch: Arch) -> Vec<variants::Fwd> {
        vec![variants::fwd(*self, arch)]
    }

    fn geometry(&self, variant: variants::Fwd, p: &Self::Params) -> Geometry {
        variants::fwd_geometry(self.d, variant, p)
    }
}

impl Reference for AttentionFwd {
    fn examples() -> Vec<Self> {
        let keys = [(64, None, Dtype::Bf16), (128, None, Dtype::Bf16), (32, None, Dtype::F32)];
        let windows = [
            (64, Some(70), Dtype::Bf16),
            (64, Some(24), Dtype::Bf16),
            (32, Some(2), Dtype::F32),
            (32, Some(32), Dtype::F32),
        ];
        let wide = [(256, None, Dtype::Bf16), (256, Some(64), Dtype::Bf16), (256, None, Dtype::F32)];
        keys.into_iter().chain(windows).chain(wide).map(|(d, window, x)| Self { d, window, x }).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        samples!(self)
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, count, seq_len) = (batch.tokens(), batch.sequences, batch.seq_len);
        let kv_heads = kv_heads(self.d);
        Self::Params { tokens, count, seq_len, heads: 4 * kv_heads, kv_heads, ..self.samples()[0] }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for AttentionDelta {
    type Variant = Threads;

    fn source(&self, _variant: Threads) -> Source {
        source!("attention", "delta.cu")
    }

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 128 }]
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        // A lane takes eight elements of a row; a row takes a power of two lanes.
        let lanes = (self.d / 8).next_power_of_two();
        Geometry::linear((p.tokens * p.heads).div_ceil(variant.threads / lanes), variant.threads)
    }
}

impl Reference for AttentionDelta {
    fn examples() -> Vec<Self> {
        [(80, Dtype::Bf16), (256, Dtype::Bf16), (16, Dtype::F32)].map(|(d, x)| Self { d, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::delta(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        SAMPLES.map(|(tokens, _, _, heads, _)| Self::Params { tokens, heads, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), heads: 4 * kv_heads(self.d), ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl AttentionBwd {
    /// Returns the keys that two queries see on average.
    pub(crate) fn seen(&self, p: &attention_bwd_params) -> u64 {
        seen(p.seq_len, self.window)
    }
}

impl Build for AttentionBwd {
    type Variant = variants::Bwd;

    fn source(&self, variant: variants::Bwd) -> Source {
        variants::bwd_source(variant)
    }

    fn variants(&self, arch: Arch) -> Vec<variants::Bwd> {
        vec![variants::bwd(*self, arch)]
    }

    fn geometry(&self, variant: variants::Bwd, p: &Self::Params) -> Geometry {
        variants::bwd_geometry(self.d, variant, p)
    }
}

impl Reference for AttentionBwd {
    fn examples() -> Vec<Self> {
        let keys = [(64, None, Dtype::Bf16), (16, None, Dtype::F32), (48, None, Dtype::F32)];
        let windows = [(64, Some(70), Dtype::Bf16), (32, Some(2), Dtype::F32), (32, Some(32), Dtype::F32)];
        let wide = [(256, None, Dtype::Bf16), (256, Some(64), Dtype::Bf16), (256, None, Dtype::F32)];
        keys.into_iter().chain(windows).chain(wide).map(|(d, window, x)| Self { d, window, x }).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        samples!(self)
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (tokens, count, seq_len) = (batch.tokens(), batch.sequences, batch.seq_len);
        let kv_heads = kv_heads(self.d);
        Self::Params { tokens, count, seq_len, heads: 4 * kv_heads, kv_heads, ..self.samples()[0] }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

/// Long f32 sums with an exponential between them.
fn tolerance(operand: &Operand) -> Tolerance {
    match operand.format {
        Format::Dense(Dtype::F32) => Tolerance { norm: 1e-5, element: 4e-5, absolute: 0.0 },
        format => Tolerance::of(format),
    }
}
