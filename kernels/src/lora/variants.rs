//! Variants of adapters' GEMMs: on CUDA cores, or on tensor cores with tiles for their operands.

use crate::gemm::CudaCores;
use crate::{Dtype, Fixed, Geometry, Kernel, variant};

variant! {
    /// Tensor cores by `mma.sync`: the mainloop of `gemm/mma`, with smaller warp tiles than a GEMM's.
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
        /// Rows of a warp's part of the tile.
        warp_m: u32,
        /// Columns of a warp's part of the tile.
        warp_n: u32,
    }
}

variant! {
    /// A row of the family's tables.
    pub enum Tiling {
        CudaCores,
        /// Tensor cores by `mma.sync`.
        Mma,
    }
}

const fn mma([tile_m, tile_n, tile_k]: [u32; 3], [warp_m, warp_n]: [u32; 2], stages: u32) -> Tiling {
    let threads = tile_m / warp_m * (tile_n / warp_n) * 32;
    Tiling::Mma(Mma { mma: Fixed, stages, threads, tile_k, tile_m, tile_n, warp_m, warp_n })
}

const CUDA_CORES: Tiling = Tiling::CudaCores(CudaCores { threads: 256, tile: 64 });

static F32: &[Tiling] = &[CUDA_CORES];

/// Long sums with few columns: operands read once stream through pipelines that take all shared memory of an SM with
/// 100 KiB. Four warps per CTA, because 4096 tokens are 64 tiles. The last is for large ranks.
const FEW_COLUMNS: [Tiling; 3] =
    [mma([64, 32, 64], [16, 32], 8), mma([64, 64, 64], [32, 32], 6), mma([128, 128, 32], [64, 64], 3)];

static STREAM: &[Tiling] = &[FEW_COLUMNS[0], FEW_COLUMNS[1], FEW_COLUMNS[2], CUDA_CORES];

/// [`FEW_COLUMNS`] for an MN-major B: its columns come in slabs of 64.
static STREAM_MN: &[Tiling] = &[FEW_COLUMNS[1], FEW_COLUMNS[2], CUDA_CORES];

/// Short sums, added to a large matrix: each warp has its part of the matrix in flight.
static ADD: &[Tiling] = &[mma([64, 64, 32], [32, 32], 2), CUDA_CORES];

/// Gradients of the narrow matrices: B's has few columns, A's few rows.
static WGRAD: &[Tiling] = &[mma([128, 64, 32], [64, 32], 4), mma([64, 128, 32], [64, 32], 4), CUDA_CORES];

/// One of the GEMMs: layouts of operands and results differ, so different tiles suit them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GemmForm {
    Stream,
    StreamMn,
    Add,
    Wgrad,
}

impl GemmForm {
    pub fn variants(self, dtype: Dtype) -> &'static [Tiling] {
        match (dtype, self) {
            (Dtype::Bf16, GemmForm::Stream) => STREAM,
            (Dtype::Bf16, GemmForm::StreamMn) => STREAM_MN,
            (Dtype::Bf16, GemmForm::Add) => ADD,
            (Dtype::Bf16, GemmForm::Wgrad) => WGRAD,
            _ => F32,
        }
    }

    /// Selects the variant for results of this size, of those admitted: for few columns the first that is wide enough.
    pub fn select(self, dtype: Dtype, admits: impl Fn(Tiling) -> bool, (rows, columns): (u32, u32)) -> Tiling {
        let suits = |variant: Tiling| match (variant, self) {
            (Tiling::Mma(mma), GemmForm::Stream | GemmForm::StreamMn) => columns <= mma.tile_n,
            (Tiling::Mma(mma), GemmForm::Wgrad) => (columns > rows) == (mma.tile_n > mma.tile_m),
            _ => true,
        };
        let admitted = self.variants(dtype).iter().copied().filter(|variant| admits(*variant));
        let (suiting, other): (Vec<Tiling>, Vec<Tiling>) = admitted.partition(|variant| suits(*variant));
        let chosen = suiting.first().or(other.last());
        *chosen.expect("every GEMM has a variant that admits it")
    }
}

/// Result of a launch of the family.
pub(super) trait LoraGemm: Kernel<Params: Sized> {
    const FORM: GemmForm;

    /// Returns the rows and columns of each part's result.
    fn results(p: &Self::Params) -> Vec<(u32, u32)>;

    /// True if, in bf16, all rows of all operands are whole 16-byte vectors on 16-byte addresses.
    fn vectors(p: &Self::Params) -> bool;

    /// Returns the ranges of the depth that are summed separately.
    fn splits(_: &Self::Params) -> u32 {
        1
    }
}

/// Returns the geometry of a launch: the parts' results in tiles, times the splits of the depth.
pub(super) fn geometry(variant: Tiling, parts: &[(u32, u32)], splits: u32) -> Geometry {
    match variant {
        Tiling::Mma(Mma { stages, threads, tile_k, tile_m, tile_n, .. }) => {
            let tiles: u32 = parts.iter().map(|(rows, columns)| rows.div_ceil(tile_m) * columns.div_ceil(tile_n)).sum();
            let shared_bytes = (tile_m + tile_n) * tile_k * 2 * stages;
            Geometry { shared_bytes, ..Geometry::linear(tiles * splits, threads) }
        }
        Tiling::CudaCores(CudaCores { threads, tile }) => {
            let most = |edge: fn(&(u32, u32)) -> u32| parts.iter().map(edge).max().unwrap_or(1).div_ceil(tile);
            let (rows, columns) = (most(|part| part.0), most(|part| part.1));
            Geometry { grid: [columns, rows, parts.len() as u32 * splits], ..Geometry::linear(1, threads) }
        }
    }
}
