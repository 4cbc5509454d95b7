//! Variants of the attention kernels, and the geometry of their launches.
//!
//! | family | keys | source |
//! | --- | --- | --- |
//! | `wgmma` | bf16, d 64, 128 or 256, sm_90a | `wgmma/` |
//! | `mma` | bf16 | `mma/` |
//! | CUDA cores | f32 | `simt/` |

use super::{AttentionBwd, AttentionFwd};
use crate::abi::{attention_bwd_params, attention_fwd_params};
use crate::{Arch, Dtype, Fixed, Geometry, Source, source, variant};

variant! {
    /// CUDA cores: four threads per row of a square tile of scores.
    pub struct Tiled {
        threads: u32,
        /// Rows and columns of a tile of scores.
        tile: u32,
    }
}

variant! {
    /// Forward, by `mma.sync`.
    pub struct FwdMma {
        /// Keys per tile.
        keys: u32,
        /// Selects this kind in the source.
        mma: Fixed<1>,
        /// Queries per CTA.
        queries: u32,
        threads: u32,
    }
}

variant! {
    /// Forward, by `wgmma`.
    pub struct FwdWgmma {
        /// CTAs per multiprocessor, which share its registers.
        blocks: u32,
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
    /// Backward, by `mma.sync`.
    pub struct BwdMma {
        /// Selects this kind in the source.
        mma: Fixed<1>,
        /// Rows of the other side multiplied at a time.
        part: u32,
        /// Rows per CTA.
        rows: u32,
        threads: u32,
        /// Rows of the other side copied at a time.
        tile: u32,
    }
}

variant! {
    /// Backward, by `wgmma`.
    pub struct BwdWgmma {
        /// Stages of tiles of the other side.
        stages: u32,
        threads: u32,
        /// Selects this kind in the source.
        wgmma: Fixed<1>,
    }
}

variant! {
    /// Backward, by `wgmma`, of wide heads.
    pub struct BwdWide {
        threads: u32,
        /// Selects this kind in the source.
        wgmma: Fixed<1>,
    }
}

variant! {
    /// Variants of the forward kernel.
    pub enum Fwd {
        /// On CUDA cores.
        Tiled,
        /// On tensor cores of every architecture.
        FwdMma,
        /// On tensor cores of sm_90a.
        FwdWgmma,
    }
}

variant! {
    /// Variants of the backward kernel.
    pub enum Bwd {
        /// On CUDA cores.
        Tiled,
        /// On tensor cores of every architecture.
        BwdMma,
        /// On tensor cores of sm_90a.
        BwdWgmma,
        /// On tensor cores of sm_90a, of wide heads.
        BwdWide,
    }
}

/// Widest head whose tiles are those of all; registers and shared memory hold fewer rows of wider ones.
const NARROW: u32 = 128;

/// Returns the variant on CUDA cores.
fn tiled(d: u32) -> Tiled {
    Tiled { threads: 128, tile: if d > NARROW { 16 } else { 32 } }
}

/// Rows that a warpgroup multiplies, and its threads.
pub(super) const WARPGROUP_ROWS: u32 = 64;
pub(super) const WARPGROUP_THREADS: u32 = 128;
/// Most bytes that aligning dynamic shared memory to the swizzle's period takes.
const ALIGNMENT_BYTES: u32 = 1024;

/// Returns the tiles of keys and of values of so many stages: half a stage more for wide heads.
pub(super) fn slots(d: u32, stages: u32) -> u32 {
    2 * stages + u32::from(d > NARROW)
}

/// Returns the bytes of a row of bf16 in shared memory, padded so that a column is conflict free.
pub(super) fn padded_row(d: u32) -> u32 {
    2 * d + 16
}

/// Returns the bytes of shared memory for `tiles` tiles of tile x d and one of tile x tile in f32, rows padded by one
/// float.
pub(super) fn tiled_bytes(tile: u32, d: u32, tiles: u32) -> u32 {
    4 * tile * (tiles * (d + 1) + tile + 1)
}

pub(super) fn fwd(key: AttentionFwd, arch: Arch) -> Fwd {
    let wgmma = |blocks, stages, threads| Fwd::FwdWgmma(FwdWgmma { blocks, keys: 64, stages, threads, wgmma: Fixed });
    // The compiler spills registers of warps with 32 queries where windows are narrower.
    let queries = |least| if key.window.is_some_and(|window| window < least) { 64 } else { 128 };
    let mma = |keys, queries| Fwd::FwdMma(FwdMma { keys, mma: Fixed, queries, threads: 128 });
    match (key.x, arch, key.d) {
        (Dtype::Bf16, Arch::Sm90a, 64) => wgmma(2, 3, 256),
        (Dtype::Bf16, Arch::Sm90a, 128) => wgmma(1, 3, 384),
        (Dtype::Bf16, Arch::Sm90a, 256) => wgmma(1, 2, 256),
        (Dtype::Bf16, _, ..=64) => mma(64, queries(64)),
        (Dtype::Bf16, _, ..=NARROW) => mma(32, queries(512)),
        (Dtype::Bf16, ..) => mma(32, 64),
        _ => Fwd::Tiled(tiled(key.d)),
    }
}

pub(super) fn bwd(key: AttentionBwd, arch: Arch) -> Bwd {
    let wgmma = |threads| Bwd::BwdWgmma(BwdWgmma { stages: 2, threads, wgmma: Fixed });
    let mma = |tile| Bwd::BwdMma(BwdMma { mma: Fixed, part: tile, rows: 64, threads: 128, tile });
    match (key.x, arch, key.d) {
        (Dtype::Bf16, Arch::Sm90a, 64) => wgmma(384),
        (Dtype::Bf16, Arch::Sm90a, 128) => wgmma(256),
        (Dtype::Bf16, Arch::Sm90a, 256) => Bwd::BwdWide(BwdWide { threads: 256, wgmma: Fixed }),
        (Dtype::Bf16, _, ..=64) => mma(64),
        (Dtype::Bf16, _, ..=NARROW) => mma(32),
        (Dtype::Bf16, ..) => mma(16),
        _ => Bwd::Tiled(tiled(key.d)),
    }
}

pub(super) fn fwd_source(variant: Fwd) -> Source {
    match variant {
        Fwd::FwdWgmma(_) => {
            source!(
                "attention",
                "wgmma/fwd.cu",
                "sequences.cuh",
                "softmax.cuh",
                "wgmma/mainloop.cuh",
                "wgmma/tile.cuh",
                "window.cuh"
            )
        }
        Fwd::FwdMma(_) => {
            source!(
                "attention",
                "mma/fwd.cu",
                "sequences.cuh",
                "softmax.cuh",
                "mma/mainloop.cuh",
                "mma/tile.cuh",
                "window.cuh"
            )
        }
        Fwd::Tiled(_) => {
            source!("attention", "simt/fwd.cu", "sequences.cuh", "simt/mainloop.cuh", "simt/tile.cuh", "window.cuh")
        }
    }
}

pub(super) fn bwd_source(variant: Bwd) -> Source {
    match variant {
        Bwd::BwdWgmma(_) => {
            source!("attention", "wgmma/bwd.cu", "sequences.cuh", "softmax.cuh", "wgmma/tile.cuh", "window.cuh")
        }
        Bwd::BwdWide(_) => {
            source!("attention", "wgmma/bwd_wide.cu", "sequences.cuh", "softmax.cuh", "wgmma/tile.cuh", "window.cuh")
        }
        Bwd::BwdMma(_) => {
            source!("attention", "mma/bwd.cu", "sequences.cuh", "softmax.cuh", "mma/tile.cuh", "window.cuh")
        }
        Bwd::Tiled(_) => source!("attention", "simt/bwd.cu", "sequences.cuh", "simt/tile.cuh", "window.cuh"),
    }
}

/// Returns the most tiles of `rows` rows, of which each token has `heads`, that `count` sequences of `tokens` tokens in
/// all have: each begins with a tile of its own.
fn tiles(tokens: u32, count: u32, heads: u32, rows: u32) -> u32 {
    tokens * heads / rows + count
}

/// CTAs own rows of one sequence; those of the grid behind the last tile of all sequences leave at once.
pub(super) fn fwd_geometry(d: u32, variant: Fwd, p: &attention_fwd_params) -> Geometry {
    let (grid, threads, shared_bytes) = match variant {
        Fwd::FwdWgmma(FwdWgmma { keys, stages, threads, .. }) => {
            // A CTA owns rows of a key/value head's group: (position, head of the group).
            let rows = threads / WARPGROUP_THREADS * WARPGROUP_ROWS;
            let tiles = tiles(p.tokens, p.count, p.heads / p.kv_heads, rows);
            let tile_rows = rows + slots(d, stages) * keys;
            ([tiles * p.kv_heads, 1, 1], threads, ALIGNMENT_BYTES + 2 * d * tile_rows)
        }
        Fwd::FwdMma(FwdMma { keys, queries, threads, .. }) => {
            // Two stages of keys and values.
            let tile_rows = queries + 4 * keys;
            ([tiles(p.tokens, p.count, 1, queries) * p.heads, 1, 1], threads, padded_row(d) * tile_rows)
        }
        Fwd::Tiled(Tiled { threads, tile }) => {
            ([tiles(p.tokens, p.count, 1, tile), p.heads, 1], threads, tiled_bytes(tile, d, 3))
        }
    };
    Geometry { grid, block: [threads, 1, 1], shared_bytes }
}

/// CTAs own keys of a key/value head, or queries.
pub(super) fn bwd_geometry(d: u32, variant: Bwd, p: &attention_bwd_params) -> Geometry {
    let (grid, threads, shared_bytes) = match variant {
        Bwd::BwdWgmma(BwdWgmma { stages, threads, .. }) => {
            let warpgroups = threads / WARPGROUP_THREADS;
            let of_keys = tiles(p.tokens, p.count, 1, WARPGROUP_ROWS); // as bwd.cu has it
            let of_queries = tiles(p.tokens, p.count, p.heads / p.kv_heads, WARPGROUP_ROWS * warpgroups);
            // Own rows and the stages, each two tiles; two statistics per row of a stage.
            let bytes = WARPGROUP_ROWS * ((1 + stages) * 2 * 2 * d + stages * 2 * 4);
            ([(of_keys + of_queries) * p.kv_heads, 1, 1], threads, ALIGNMENT_BYTES + warpgroups * bytes)
        }
        Bwd::BwdWide(BwdWide { threads, .. }) => {
            let warpgroups = threads / WARPGROUP_THREADS;
            let rows = warpgroups * WARPGROUP_ROWS;
            let of_keys = tiles(p.tokens, p.count, 1, rows); // as bwd_wide.cu has it, and as many of values
            let of_queries = tiles(p.tokens, p.count, p.heads / p.kv_heads, rows);
            // Own rows, each two tiles; one early and two late halves of tiles; two statistics per row of the late.
            let bytes = WARPGROUP_ROWS * ((2 * warpgroups + 3) * 2 * d + 2 * 2 * 4);
            ([(2 * of_keys + of_queries) * p.kv_heads, 1, 1], threads, ALIGNMENT_BYTES + bytes)
        }
        Bwd::BwdMma(BwdMma { rows, threads, tile, .. }) => {
            // Gradients of wide keys and values have CTAs of their own, and statistics lie in the padding of rows.
            let (gradients, statistics) = if d > NARROW { (2, 0) } else { (1, 2 * 2 * tile * 4) };
            let blocks = tiles(p.tokens, p.count, 1, rows) * (p.heads + gradients * p.kv_heads);
            ([blocks, 1, 1], threads, padded_row(d) * (2 * rows + 4 * tile) + statistics)
        }
        Bwd::Tiled(Tiled { threads, tile }) => {
            let tiles = tiles(p.tokens, p.count, 1, tile);
            ([tiles, p.heads + p.kv_heads, 1], threads, tiled_bytes(tile, d, 4))
        }
    };
    Geometry { grid, block: [threads, 1, 1], shared_bytes }
}
