//! How a GEMM is built: on CUDA cores, or on tensor cores by one of two instructions.

use crate::{Fixed, variant};

variant! {
    /// CUDA cores, any shape: threads in a square, each with as many squared sums as the tile has for it.
    pub struct CudaCores {
        /// Threads of a CTA.
        threads: u32,
        /// Rows and columns of a tile of the result.
        tile: u32,
    }
}

variant! {
    /// Tensor cores by `mma.sync`: warps of 64 x `warp_n`.
    pub struct Mma {
        /// Tells the source that it is built as this.
        mma: Fixed<1>,
        /// Slices of the depth in shared memory.
        stages: u32,
        /// Threads of a CTA.
        threads: u32,
        /// Depth of a slice.
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
    /// Tensor cores by `wgmma` and copies by TMA: two warpgroups multiply, one copies. The CTAs of a cluster divide the depth
    /// of what is left over, or copy for each other what their tiles have in common: see `GemmOp::multicasts`.
    pub struct Wgmma {
        /// CTAs of a cluster.
        cluster: u32,
        /// Shared memory in bytes: the pipeline has as many stages as fit.
        shared_bytes: u32,
        /// Threads of a CTA.
        threads: u32,
        /// Depth of a slice.
        tile_k: u32,
        /// Rows of a tile of the result.
        tile_m: u32,
        /// Columns of a tile of the result.
        tile_n: u32,
        /// Tells the source that it is built as this.
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
        /// Tensor cores of sm_90a.
        Wgmma,
    }
}

impl Tiling {
    /// Rows and columns of a tile of the result.
    pub fn tile(self) -> (u32, u32) {
        match self {
            Tiling::CudaCores(CudaCores { tile, .. }) => (tile, tile),
            Tiling::Mma(Mma { tile_m, tile_n, .. }) | Tiling::Wgmma(Wgmma { tile_m, tile_n, .. }) => (tile_m, tile_n),
        }
    }
}
