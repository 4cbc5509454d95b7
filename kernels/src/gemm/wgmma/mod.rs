//! GEMM on sm_90a: TMA, wgmma, warp specialization, and persistent CTAs, one per SM, each with its own list of tiles.
//!
//! The CTAs of a cluster compute tiles below each other and multicast their common B. In gradients, with fewer tiles
//! than SMs, or tiles beyond whole waves, they split K for those and reduce in a fixed order, unless 64-row tiles fill
//! the GPU unsplit. Epilogues in bf16 run while the next tile is multiplied. Sources: PTX ISA, "Asynchronous Warpgroup
//! Level Matrix Instructions" and "Tensor Map"; Osama et al., "Stream-K", 2023 (splitting only tiles beyond whole
//! waves).

use super::select::GemmOp;
use super::variants::Wgmma;
use crate::abi::tensor_map;
use crate::{Arch, Dtype, Geometry, TensorMap};

/// Elements in the 128 bytes of a swizzled row: the depth of a k-tile, and the rows of a slab.
const SWIZZLE_ELEMS: u32 = 64;

pub(crate) fn geometry(op: GemmOp, variant: Wgmma, rows: u32, columns: u32) -> Geometry {
    let cluster = variant.cluster;
    let (rows, columns) = (rows.div_ceil(variant.tile_m), columns.div_ceil(variant.tile_n));
    let blocks = if op.splits_k_tiles(variant) {
        rows.next_multiple_of(cluster) * columns
    } else {
        (rows * columns * cluster).min(Arch::Sm90a.multiprocessors() / cluster * cluster)
    };
    Geometry { shared_bytes: variant.shared_bytes, ..Geometry::linear(blocks, variant.threads) }
}

/// Returns one cluster if CTAs are persistent; none where each tile has a CTA.
pub(crate) fn smallest_grid(op: GemmOp, variant: Wgmma) -> Option<u32> {
    (!op.splits_k_tiles(variant)).then_some(variant.cluster)
}

/// An operand: offset of its address in the parameter block, its rows and columns in memory, and true if it is
/// MN-major.
pub(crate) type MatrixLayout = (usize, [u32; 2], bool);

/// Returns tensor maps of both operands, the first at `offset`. A box of a K-major operand is a tile's rows, of an
/// MN-major one a slab of 64. Where CTAs always share the second operand, each loads a part of that box; where they may
/// split K, too, it is MN-major, and each loads some of its slabs.
pub(crate) fn tensor_maps(op: GemmOp, variant: Wgmma, offset: usize, operands: [MatrixLayout; 2]) -> Vec<TensorMap> {
    // A gated tile's columns come from two places.
    let parts = if op.is_gated() { 2 } else { 1 };
    let tile = [variant.tile_m, variant.tile_n / parts];
    let sharers = if op.never_splits(variant) { variant.cluster } else { 1 };
    let box_rows = |index, mn| match (mn, if index == 1 { sharers } else { 1 }) {
        (false, sharers) => tile[index] / sharers,
        (true, 1) => variant.tile_k,
        (true, sharers) => variant.tile_k * (tile[index] / SWIZZLE_ELEMS) / sharers,
    };
    let map = |(index, (address, shape, mn)): (usize, MatrixLayout)| TensorMap {
        offset: offset + index * size_of::<tensor_map>(),
        address,
        dtype: Dtype::Bf16,
        shape,
        box_shape: [box_rows(index, mn), SWIZZLE_ELEMS],
    };
    operands.into_iter().enumerate().map(map).collect()
}
