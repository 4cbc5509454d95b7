//! How products of adapters are built: on CUDA cores, or on tensor cores with tiles for what each of them moves.

use crate::gemm::{CudaCores, Mma};
use crate::{Dtype, Fixed, Geometry, Kernel, variant};

variant! {
    /// A row of the family's tables.
    pub enum Tiling {
        /// CUDA cores.
        CudaCores,
        /// Tensor cores by `mma.sync`.
        Mma,
    }
}

const fn mma([tile_m, tile_n, tile_k]: [u32; 3], warp_n: u32, stages: u32) -> Tiling {
    let threads = tile_m / 64 * (tile_n / warp_n) * 32;
    Tiling::Mma(Mma { mma: Fixed, stages, threads, tile_k, tile_m, tile_n, warp_n })
}

const CUDA_CORES: Tiling = Tiling::CudaCores(CudaCores { threads: 256, tile: 64 });

static F32: &[Tiling] = &[CUDA_CORES];

/// Long sums with few columns: what is read once streams through deep pipelines. Then columns of large ranks.
static STREAM: &[Tiling] = &[mma([64, 64, 64], 32, 4), mma([128, 128, 32], 64, 3), CUDA_CORES];

/// Short sums, added to a large matrix: each warp has its part of that in flight.
static ADD: &[Tiling] = &[mma([128, 64, 32], 32, 2), CUDA_CORES];

/// Gradients of the matrices, which are narrow: B's has few columns, A's few rows.
static WGRAD: &[Tiling] = &[mma([128, 64, 32], 32, 4), mma([64, 128, 32], 32, 4), CUDA_CORES];

/// Which of the products: their operands and results lie differently, so different tiles suit them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Stream,
    Add,
    Wgrad,
}

impl Form {
    pub fn variants(self, dtype: Dtype) -> &'static [Tiling] {
        match (dtype, self) {
            (Dtype::Bf16, Form::Stream) => STREAM,
            (Dtype::Bf16, Form::Add) => ADD,
            (Dtype::Bf16, Form::Wgrad) => WGRAD,
            _ => F32,
        }
    }

    /// The variant for results of this size.
    pub fn select(self, dtype: Dtype, vectors: bool, (rows, columns): (u32, u32)) -> Tiling {
        let other = match self {
            Form::Stream => columns > 64,
            Form::Add => false,
            Form::Wgrad => columns > rows,
        };
        let mut admitted = self.variants(dtype).iter().filter(|variant| admits(**variant, dtype, vectors));
        let first = admitted.next().expect("every product has a variant that admits it");
        *admitted.next().filter(|_| other).unwrap_or(first)
    }
}

/// What a launch of a kernel of the family computes.
pub(super) trait Product: Kernel<Params: Sized> {
    const FORM: Form;

    /// Rows and columns of the result of each part.
    fn results(p: &Self::Params) -> Vec<(u32, u32)>;

    /// Whether, in bf16, all rows of all operands are whole 16-byte vectors on 16-byte addresses.
    fn vectors(p: &Self::Params) -> bool;

    /// Ranges of the depth that are summed apart.
    fn splits(_: &Self::Params) -> u32 {
        1
    }
}

/// bf16 runs on tensor cores wherever it can be copied in vectors.
pub(super) fn admits(variant: Tiling, dtype: Dtype, vectors: bool) -> bool {
    dtype != Dtype::Bf16 || matches!(variant, Tiling::Mma(_)) == vectors
}

/// A launch: the results of the parts in tiles, each as often as the depth is divided.
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
