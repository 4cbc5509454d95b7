//! Attention of single rows to the keys and values of a pool, with the bits of the forward pass.
//!
//! Bits of attention follow from the instruction, from the tile of keys, after which accumulators are rescaled, and
//! from the order inside of a tile. Queries per CTA, warps and stages change none of them: the accumulators of a row
//! are those of four neighboring threads. So each variant here is derived from that of `attention.fwd` on the same
//! architecture, has its tile of keys and runs its mainloop.

use super::variants::{self, Fwd, FwdMma, FwdWgmma, Tiled, WARPGROUP_ROWS, WARPGROUP_THREADS};
use super::{AttentionFwd, host, kv_heads, seen, tolerance};
use crate::abi::{AttentionDecode, attention_decode_params};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Fixed, Geometry, Operand, Reference, Source, Tolerance, variant};

variant! {
    /// By `mma.sync`: a warp.
    pub struct DecodeMma {
        /// Keys per tile.
        keys: u32,
        /// Selects this kind in the source.
        mma: Fixed<1>,
        threads: u32,
    }
}

variant! {
    /// By `wgmma`: a warpgroup.
    pub struct DecodeWgmma {
        /// Keys per tile.
        keys: u32,
        /// Stages of keys and values.
        stages: u32,
        threads: u32,
        /// Selects this kind in the source.
        wgmma: Fixed<1>,
    }
}

variant! {
    /// Variants for single rows.
    pub enum Decode {
        /// On CUDA cores.
        Tiled,
        /// On tensor cores of every architecture.
        DecodeMma,
        /// On tensor cores of sm_90a.
        DecodeWgmma,
    }
}

/// Query heads that a warp multiplies.
const WARP_ROWS: u32 = 16;

/// Sources of a folder, with the pool's headers.
macro_rules! decode_source {
    ($folder:literal $(, $header:literal)*) => {
        Source {
            path: concat!("attention/", $folder, "/decode.cu"),
            text: include_str!(concat!($folder, "/decode.cu")),
            headers: &[
                ("attention.h", include_str!("attention.h")),
                ("attention_decode.h", include_str!("attention_decode.h")),
                ("attention/decode.cuh", include_str!("decode.cuh")),
                ("attention/sequences.cuh", include_str!("sequences.cuh")),
                ("attention/window.cuh", include_str!("window.cuh")),
                ("kv.h", include_str!("../kv/kv.h")),
                ("kv/pool.cuh", include_str!("../kv/pool.cuh")),
                $((concat!("attention/", $header), include_str!($header)),)*
            ],
            common: &crate::COMMON,
        }
    };
}

impl AttentionDecode {
    /// Returns the keys that two queries see on average.
    pub(crate) fn seen(&self, p: &attention_decode_params) -> u64 {
        seen(p.seq_len, self.window)
    }
}

impl Build for AttentionDecode {
    type Variant = Decode;

    fn variants(&self, arch: Arch) -> Vec<Decode> {
        vec![match variants::fwd(AttentionFwd { d: self.d, window: self.window, x: self.x }, arch) {
            Fwd::FwdWgmma(FwdWgmma { keys, stages, .. }) => {
                Decode::DecodeWgmma(DecodeWgmma { keys, stages, threads: WARPGROUP_THREADS, wgmma: Fixed })
            }
            Fwd::FwdMma(FwdMma { keys, .. }) => Decode::DecodeMma(DecodeMma { keys, mma: Fixed, threads: 32 }),
            Fwd::Tiled(tiled) => Decode::Tiled(tiled),
        }]
    }

    fn source(&self, variant: Decode) -> Source {
        match variant {
            Decode::DecodeWgmma(_) => {
                decode_source!("wgmma", "softmax.cuh", "wgmma/mainloop.cuh", "wgmma/tile.cuh")
            }
            Decode::DecodeMma(_) => decode_source!("mma", "softmax.cuh", "mma/mainloop.cuh", "mma/tile.cuh"),
            Decode::Tiled(_) => decode_source!("simt", "simt/mainloop.cuh", "simt/tile.cuh"),
        }
    }

    /// CTAs along x are rows, along y key/value heads, along z tiles of the query heads of each.
    fn geometry(&self, variant: Decode, p: &Self::Params) -> Geometry {
        let d = self.d;
        let (rows, threads, shared_bytes) = match variant {
            Decode::DecodeWgmma(DecodeWgmma { keys, stages, threads, .. }) => {
                let tile_rows = WARPGROUP_ROWS + variants::slots(d, stages) * keys;
                (WARPGROUP_ROWS, threads, 2 * d * tile_rows)
            }
            Decode::DecodeMma(DecodeMma { keys, threads, .. }) => {
                // Two stages of keys and values.
                (WARP_ROWS, threads, variants::padded_row(d) * (WARP_ROWS + 4 * keys))
            }
            Decode::Tiled(Tiled { threads, tile }) => (tile, threads, variants::tiled_bytes(tile, d, 3)),
        };
        let tiles = (p.heads / p.kv_heads).div_ceil(rows);
        Geometry { grid: [p.rows, p.kv_heads, tiles], block: [threads, 1, 1], shared_bytes }
    }
}

impl Reference for AttentionDecode {
    fn examples() -> Vec<Self> {
        let keys = [(64, None, Dtype::Bf16), (80, None, Dtype::Bf16), (128, None, Dtype::Bf16), (32, None, Dtype::F32)];
        let windows = [(64, Some(70), Dtype::Bf16), (32, Some(2), Dtype::F32), (32, Some(32), Dtype::F32)];
        let wide = [(256, None, Dtype::Bf16), (256, Some(64), Dtype::Bf16), (256, None, Dtype::F32)];
        [&keys[..], &windows, &wide].concat().into_iter().map(|(d, window, x)| Self { d, window, x }).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::decode(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // Grouped, ungrouped, groups of several tiles, more tiles of keys than stages.
        [(1, 1, 1, 1, 1, 1), (5, 6, 33, 3, 3, 0), (3, 3, 70, 34, 2, 1), (2, 3, 97, 66, 1, 0), (12, 14, 260, 3, 1, 1)]
            .map(|(rows, slots, seq_len, heads, kv_heads, is_step)| Self::Params {
                is_step,
                rows,
                slots,
                seq_len,
                heads,
                kv_heads,
                scale: 0.8 / (self.d as f32).sqrt(),
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let (rows, seq_len, kv_heads) = (batch.tokens().div_ceil(64), batch.seq_len, kv_heads(self.d));
        Self::Params { rows, slots: rows, seq_len, heads: 4 * kv_heads, kv_heads, ..self.samples()[0] }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}
