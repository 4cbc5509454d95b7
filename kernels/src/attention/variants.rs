//! How the attention kernels are built, and the launches that follow.
//!
//! | family | keys | source |
//! | --- | --- | --- |
//! | `wgmma` | bf16, d 64 or 128, Hopper | `fwd_wgmma.cu`, `bwd_wgmma.cu` |
//! | `mma` | bf16 | `fwd_mma.cu`, `bwd_mma.cu` |
//! | CUDA cores | f32 | `fwd.cu`, `bwd.cu` |

use super::{AttentionBwd, AttentionFwd};
use crate::abi::{attention_bwd_params, attention_fwd_params};
use crate::build::Geometry;
use crate::source::Source;
use crate::{Arch, Dtype, Variant, source};

/// 128 threads, four to a row of a 32 x 32 tile of scores.
const TILED: &[Variant] = &[Variant::new(&[("threads", 128), ("tile", 32)])];

/// `blocks` of a multiprocessor share its registers; `keys` of a tile.
const FWD_WGMMA_64: &[Variant] = &[Variant::new(&[("blocks", 2), ("keys", 64), ("threads", 256), ("wgmma", 1)])];
const FWD_WGMMA_128: &[Variant] = &[Variant::new(&[("blocks", 1), ("keys", 64), ("threads", 384), ("wgmma", 1)])];
/// `queries` of a block, `keys` of a tile.
const FWD_MMA_64: &[Variant] = &[Variant::new(&[("keys", 64), ("mma", 1), ("queries", 128), ("threads", 128)])];
const FWD_MMA_128: &[Variant] = &[Variant::new(&[("keys", 32), ("mma", 1), ("queries", 128), ("threads", 128)])];
const BWD_WGMMA_64: &[Variant] = &[Variant::new(&[("threads", 384), ("wgmma", 1)])];
const BWD_WGMMA_128: &[Variant] = &[Variant::new(&[("threads", 256), ("wgmma", 1)])];
/// `rows` of a block; the other side is copied a `tile` and multiplied a `part` at a time.
const BWD_MMA_64: &[Variant] =
    &[Variant::new(&[("mma", 1), ("part", 64), ("rows", 64), ("threads", 128), ("tile", 64)])];
const BWD_MMA_128: &[Variant] =
    &[Variant::new(&[("mma", 1), ("part", 32), ("rows", 64), ("threads", 128), ("tile", 32)])];

/// Rows a warpgroup multiplies, and threads it has.
const WARPGROUP_ROWS: u32 = 64;
const WARPGROUP_THREADS: u32 = 128;
/// Stages of keys and values of the Hopper forward.
const FWD_WGMMA_STAGES: u32 = 3;
/// What aligning dynamic shared memory to the swizzle's period may take.
const ALIGNMENT_BYTES: u32 = 1024;

/// Bytes of a row of bf16 in shared memory, padded so that a column is conflict free.
fn padded_row(d: u32) -> u32 {
    2 * d + 16
}

/// Bytes of shared memory for `tiles` tiles of tile x d and one of tile x tile in f32, rows padded by one float.
fn tiled_bytes(variant: Variant, d: u32, tiles: u32) -> u32 {
    let tile = variant.get("tile");
    4 * tile * (tiles * (d + 1) + tile + 1)
}

pub(super) fn fwd(key: AttentionFwd, arch: Arch) -> Vec<Variant> {
    let rows = match (key.x, arch, key.d) {
        (Dtype::Bf16, Arch::Sm90a, 64) => FWD_WGMMA_64,
        (Dtype::Bf16, Arch::Sm90a, 128) => FWD_WGMMA_128,
        (Dtype::Bf16, _, ..=64) => FWD_MMA_64,
        (Dtype::Bf16, ..) => FWD_MMA_128,
        _ => TILED,
    };
    rows.to_vec()
}

pub(super) fn bwd(key: AttentionBwd, arch: Arch) -> Vec<Variant> {
    let rows = match (key.x, arch, key.d) {
        (Dtype::Bf16, Arch::Sm90a, 64) => BWD_WGMMA_64,
        (Dtype::Bf16, Arch::Sm90a, 128) => BWD_WGMMA_128,
        (Dtype::Bf16, _, ..=64) => BWD_MMA_64,
        (Dtype::Bf16, ..) => BWD_MMA_128,
        _ => TILED,
    };
    rows.to_vec()
}

pub(super) fn fwd_source(variant: Variant) -> Source {
    if variant.has("wgmma") {
        source!("attention", "fwd_wgmma.cu", "fragments.cuh", "warpgroup.cuh")
    } else if variant.has("mma") {
        source!("attention", "fwd_mma.cu", "fragments.cuh", "rows.cuh")
    } else {
        source!("attention", "fwd.cu", "tile.cuh")
    }
}

pub(super) fn bwd_source(variant: Variant) -> Source {
    if variant.has("wgmma") {
        source!("attention", "bwd_wgmma.cu", "fragments.cuh", "warpgroup.cuh")
    } else if variant.has("mma") {
        source!("attention", "bwd_mma.cu", "fragments.cuh", "rows.cuh")
    } else {
        source!("attention", "bwd.cu", "tile.cuh")
    }
}

pub(super) fn fwd_geometry(key: AttentionFwd, variant: Variant, p: &attention_fwd_params) -> Geometry {
    let (d, threads) = (key.d, variant.threads());
    let (grid, shared_bytes) = if variant.has("wgmma") {
        // A block owns rows of a key/value head's group: (position, head of the group).
        let rows = threads / WARPGROUP_THREADS * WARPGROUP_ROWS;
        let tiles = (p.seq_len * (p.heads / p.kv_heads)).div_ceil(rows);
        let tile_rows = rows + 2 * FWD_WGMMA_STAGES * variant.get("keys");
        ([p.batch * p.kv_heads, tiles, 1], ALIGNMENT_BYTES + 2 * d * tile_rows)
    } else if variant.has("mma") {
        let queries = variant.get("queries");
        // Two stages of keys and values.
        let tile_rows = queries + 4 * variant.get("keys");
        ([p.heads, p.batch, p.seq_len.div_ceil(queries)], padded_row(d) * tile_rows)
    } else {
        ([p.seq_len.div_ceil(variant.get("tile")), p.heads, p.batch], tiled_bytes(variant, d, 3))
    };
    Geometry { grid, block: [threads, 1, 1], shared_bytes }
}

/// Blocks own keys of a key/value head, or queries.
pub(super) fn bwd_geometry(key: AttentionBwd, variant: Variant, p: &attention_bwd_params) -> Geometry {
    let (d, threads) = (key.d, variant.threads());
    let (grid, shared_bytes) = if variant.has("wgmma") {
        let warpgroups = threads / WARPGROUP_THREADS;
        let of_keys = p.seq_len.div_ceil(WARPGROUP_ROWS);
        let of_queries = (p.seq_len * (p.heads / p.kv_heads)).div_ceil(WARPGROUP_ROWS * warpgroups);
        // Own rows and two stages, each two tiles; two statistics of each row of a stage.
        let walk = WARPGROUP_ROWS * (3 * 2 * 2 * d + 2 * 2 * 4);
        ([(of_keys + of_queries) * p.batch * p.kv_heads, 1, 1], ALIGNMENT_BYTES + warpgroups * walk)
    } else if variant.has("mma") {
        let (rows, tile) = (variant.get("rows"), variant.get("tile"));
        let blocks = p.seq_len.div_ceil(rows) * (p.heads + p.kv_heads) * p.batch;
        ([blocks, 1, 1], padded_row(d) * (2 * rows + 4 * tile) + 2 * 2 * tile * 4)
    } else {
        let tiles = p.seq_len.div_ceil(variant.get("tile"));
        ([tiles, p.heads + p.kv_heads, p.batch], tiled_bytes(variant, d, 4))
    };
    Geometry { grid, block: [threads, 1, 1], shared_bytes }
}
