//! Products on sm_90a: tensor-map copies, warpgroup products, and a grid of as many blocks as the GPU has
//! multiprocessors, each of which walks its own list of tiles.
//!
//! Where tiles are fewer than multiprocessors, or leave a part of a wave over, clusters of two blocks divide the depth of
//! what is left and add up in a fixed order. In forward products, and where tiles of 64 rows are many enough to be left
//! whole, clusters compute tiles below each other, and what these have in common of B is copied once. Sources: PTX ISA,
//! "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor Map"; Osama et al., "Stream-K", 2023 (dividing only what
//! is no whole wave).

use super::select::Form;
use super::variants::Wgmma;
use crate::abi::tensor_map;
use crate::{Dtype, Geometry, TensorMap};

/// Multiprocessors of an H100 or H200. On a GPU with fewer or more, a launch is right but not as fast.
const MULTIPROCESSORS: u32 = 132;

/// All shared memory a block may have: as many slices as fit are under way.
const SHARED_BYTES: u32 = 227 * 1024;

/// Elements in the 128 bytes of a swizzled row: the depth of a slice, and the rows of a panel.
const PANEL: u32 = 64;

/// Whether a block's two warpgroups multiply half of a slice each, for a tile of 64 rows.
fn halves(variant: Wgmma) -> bool {
    variant.tile_m == PANEL
}

pub(super) fn geometry(variant: Wgmma, rows: u32, columns: u32) -> Geometry {
    let cluster = variant.cluster;
    let (rows, columns) = (rows.div_ceil(variant.tile_m), columns.div_ceil(variant.tile_n));
    let blocks = if halves(variant) {
        rows.next_multiple_of(cluster) * columns
    } else {
        (rows * columns * cluster).min(MULTIPROCESSORS / cluster * cluster)
    };
    Geometry { shared_bytes: SHARED_BYTES, ..Geometry::linear(blocks, variant.threads) }
}

/// An operand of a product: where its address is in the parameter block, its rows and columns in memory, and whether it
/// runs across the depth, and not along it.
pub(super) type Side = (usize, [u32; 2], bool);

/// Tensor maps of both operands, the first at `offset`. One that runs along the depth is copied a tile's rows at a time,
/// one that runs across it in panels of 64. Of the second one, if blocks share it, each copies a part.
pub(super) fn tensor_maps(form: Form, variant: Wgmma, offset: usize, sides: [Side; 2]) -> Vec<TensorMap> {
    // A gated tile's columns come from two places.
    let parts = if form == Form::Swiglu { 2 } else { 1 };
    let tile = [variant.tile_m, variant.tile_n / parts];
    let sharers = if form.shares(variant) { variant.cluster } else { 1 };
    let box_rows = |index, across| match (across, if index == 1 { sharers } else { 1 }) {
        (false, sharers) => tile[index] / sharers,
        (true, 1) => variant.tile_k,
        (true, sharers) => variant.tile_k * (tile[index] / PANEL) / sharers,
    };
    let map = |(index, (address, shape, across)): (usize, Side)| TensorMap {
        offset: offset + index * size_of::<tensor_map>(),
        address,
        dtype: Dtype::Bf16,
        shape,
        box_shape: [box_rows(index, across), PANEL],
    };
    sides.into_iter().enumerate().map(map).collect()
}
