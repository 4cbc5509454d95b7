//! Variants of a GEMM: on CUDA cores, or on tensor cores by one of two instructions.

use crate::{Fixed, Variant, variant};

variant! {
    /// CUDA cores, any shape: a square of threads, each with an equal square of the tile's accumulators.
    pub struct CudaCores {
        threads: u32,
        /// Rows and columns of a tile of the result.
        tile: u32,
    }
}

variant! {
    /// Tensor cores by `mma.sync`: warps of 64 x `warp_n`.
    pub struct Mma {
        /// Selects this kind in the source.
        mma: Fixed<1>,
        /// K-tiles in shared memory.
        stages: u32,
        threads: u32,
        /// Depth of a k-tile.
        tile_k: u32,
        /// Rows of a tile of the result.
        tile_m: u32,
        /// Columns of a tile of the result.
        tile_n: u32,
        /// Columns of a warp's part of the tile.
        warp_n: u32,
    }
}

variant! {
    /// Tensor cores by `mma.sync`, for few rows: smaller warp tiles and as many stages as fit, since the weights
    /// stream.
    pub struct FewRows {
        /// Selects the kind of [`Mma`] in the source.
        mma: Fixed<1>,
        /// K-tiles in shared memory.
        stages: u32,
        threads: u32,
        /// Depth of a k-tile.
        tile_k: u32,
        /// Rows of a tile of the result.
        tile_m: u32,
        /// Columns of a tile of the result.
        tile_n: u32,
        /// Rows of a warp's part of the tile.
        warp_m: u32,
        /// Columns of a warp's part of the tile.
        warp_n: u32,
    }
}

variant! {
    /// Tensor cores by `wgmma` and copies by TMA: a consumer warpgroup for each 64 rows, one producer. The CTAs of a
    /// cluster multicast the common part of their tiles, and split K for tiles beyond whole waves: see
    /// `GemmOp::never_splits`.
    pub struct Wgmma {
        /// CTAs per cluster.
        cluster: u32,
        /// Shared memory in bytes: the pipeline has as many stages as fit.
        shared_bytes: u32,
        threads: u32,
        /// Depth of a k-tile.
        tile_k: u32,
        /// Rows of a tile of the result.
        tile_m: u32,
        /// Columns of a tile of the result.
        tile_n: u32,
        /// Selects this kind in the source.
        wgmma: Fixed<1>,
    }
}

variant! {
    /// A row of the family's table.
    pub enum Tiling {
        /// CUDA cores of every architecture, any dtype.
        CudaCores,
        /// Tensor cores of every architecture.
        Mma,
        /// Tensor cores of every architecture, forward GEMMs of few rows.
        FewRows,
        /// Tensor cores of sm_90a.
        Wgmma,
    }
}

/// True if a variant of a GEMM, of a layer or of an adapter, is of tensor cores: it selects one of their instructions.
pub fn on_tensor_cores(variant: Variant) -> bool {
    variant.numbers().any(|(name, _)| ["mma", "wgmma"].contains(&name))
}

impl Tiling {
    /// Returns the rows and columns of a tile of the result.
    pub fn tile(self) -> (u32, u32) {
        match self {
            Tiling::CudaCores(CudaCores { tile, .. }) => (tile, tile),
            Tiling::Mma(Mma { tile_m, tile_n, .. })
            | Tiling::FewRows(FewRows { tile_m, tile_n, .. })
            | Tiling::Wgmma(Wgmma { tile_m, tile_n, .. }) => (tile_m, tile_n),
        }
    }
}
