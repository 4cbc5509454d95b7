//! The three matrix products of a linear layer with weights `w` [n, k] (out features x in features).
//!
//! | op | result | reads |
//! | --- | --- | --- |
//! | `gemm.fwd` | `y = x w^T (+ bias) (+ residual)`, m x n, dtype x | x m x k, w n x k, bias n, residual m x n |
//! | `gemm.swiglu` | `y = silu(gate) up` with `(gate, up) = x w^T (+ bias)`, m x n, dtype x | x m x k, w 2n x k, bias 2n |
//! | `gemm.dgrad` | `dx = dy w`, m x k, dtype x | dy m x n, w n x k |
//! | `gemm.wgrad` | `dw (+)= dy^T x`, n x k, f32 | dy m x n, x m x k |
//!
//! Inputs have dtype x and weights format w, sums are f32 and are rounded once, at the store. m, n and k are run-time arguments:
//! one module serves every layer, batch and sequence length. `wgrad` overwrites in the first micro-batch of
//! a step and adds in later ones, or always with `accumulate` (later chunks of the head).
//! `swiglu` is the gate and up projection of a model that is not trained: gate and up themselves are not needed. It
//! rounds both to x first, so that its bits are those of `gemm.fwd` and `swiglu.fwd`.
//! Where tiles are few and sums long, `mma/` divides the depth (split-K) into `splits` parts, whose CTAs add to a tile one after the other;
//! the fewer products a sum has, the less tensor cores round off, too.
//! bf16 runs on tensor cores (`wgmma/` on sm_90a, `mma/` elsewhere), where the rows of all operands are whole vectors of
//! 16 bytes; all else on CUDA cores (`simt/`).
//!
//! Sources: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (tiling); NVIDIA,
//! CUTLASS, "Efficient GEMM in CUDA" (pipelines on tensor cores).

mod candidates;
mod host;
mod op;
mod rates;
pub(crate) mod select;
pub(crate) mod variants;
pub(crate) mod wgmma;

use std::mem::offset_of;

use crate::abi::{gemm_dgrad_params, gemm_fwd_params, gemm_swiglu_params, gemm_wgrad_params};
use crate::host::Views;
use crate::product::Matrix;
use crate::{
    Addend, Arch, Batch, Build, Content, Dtype, Format, Geometry, Kernel, Operand, Product, Reference, Source,
    TensorMap, Tolerance, key, operand, source,
};

use select::{GemmOp, ProblemSize};
use variants::Tiling;

pub(crate) use variants::CudaCores;

pub use select::splits_k;

key! {
    /// Inputs to outputs.
    pub struct GemmFwd = "gemm.fwd" { bias: bool, residual: bool, w: Format, x: Dtype }
}

key! {
    /// Inputs to gated outputs.
    pub struct GemmSwiglu = "gemm.swiglu" { bias: bool, w: Format, x: Dtype }
}

key! {
    /// Gradient of the inputs.
    pub struct GemmDgrad = "gemm.dgrad" { w: Format, x: Dtype }
}

key! {
    /// Gradient of the weights.
    pub struct GemmWgrad = "gemm.wgrad" { x: Dtype }
}

/// Small, ragged and tile-crossing shapes (m, n, k): for CUDA cores, then for whole vectors; the last two are deep enough to
/// be divided by depth, in dgrad and wgrad.
const SAMPLES: [(u32, u32, u32); 10] = [
    (1, 1, 1),
    (33, 65, 17),
    (130, 70, 140),
    (5, 200, 65),
    (1, 8, 8),
    (33, 72, 24),
    (130, 264, 136),
    (300, 136, 520),
    (130, 520, 264),
    (520, 136, 264),
];

/// Not divided, and into more parts than a shallow product has slices.
const SPLITS: [u32; 2] = [1, 3];

/// What rows and columns of every tile of `mma/` divide.
const LARGEST_TILE: u32 = 256;

pub(crate) fn flops(m: u32, n: u32, k: u32) -> u64 {
    2 * u64::from(m) * u64::from(n) * u64::from(k)
}

pub(crate) fn area(rows: u32, columns: u32) -> u64 {
    u64::from(rows) * u64::from(columns)
}

/// Whether rows of these lengths, in bf16, are whole 16-byte vectors, and these addresses too.
fn vectors(rows: &[u32], addresses: &[u64]) -> bool {
    rows.iter().all(|elems| elems.is_multiple_of(8)) && addresses.iter().all(|address| address.is_multiple_of(16))
}

pub(crate) fn geometry(variant: Tiling, rows: u32, columns: u32, splits: u32) -> Geometry {
    let (m, n) = variant.tile();
    let (tiles_m, tiles_n) = (rows.div_ceil(m), columns.div_ceil(n));
    match variant {
        Tiling::Wgmma(wgmma) => wgmma::geometry(wgmma, rows, columns),
        Tiling::Mma(mma) => {
            let slice_bytes = (m + n) * mma.tile_k * 2;
            let linear = Geometry::linear(tiles_m * tiles_n * splits, mma.threads);
            Geometry { shared_bytes: slice_bytes * mma.stages, ..linear }
        }
        Tiling::CudaCores(cuda_cores) => {
            Geometry { grid: [tiles_n, tiles_m, 1], ..Geometry::linear(1, cuda_cores.threads) }
        }
    }
}

/// Every kernel of the family has its source for CUDA cores and two for tensor cores.
macro_rules! gemm_variants {
    ($op:expr, $simt:literal, $mma:literal, $wgmma:literal $(, $header:literal)?) => {
        type Variant = Tiling;

        fn source(&self, variant: Tiling) -> Source {
            match variant {
                Tiling::Wgmma(_) => source!(
                    "gemm",
                    $wgmma,
                    "raster.cuh",
                    "wgmma/scheduler.cuh",
                    "wgmma/cluster_reduction.cuh",
                    "wgmma/mainloop.cuh",
                    "wgmma/multicast.cuh",
                    "wgmma/epilogue.cuh"
                    $(, $header)?
                ),
                Tiling::Mma(_) => source!(
                    "gemm",
                    $mma,
                    "raster.cuh",
                    "mma/operand.cuh",
                    "mma/mainloop.cuh",
                    "mma/split_k.cuh",
                    "mma/epilogue.cuh"
                    $(, $header)?
                ),
                Tiling::CudaCores(_) => source!("gemm", $simt, "simt/mainloop.cuh" $(, $header)?),
            }
        }

        fn variants(&self, arch: Arch) -> Vec<Tiling> {
            match self.inputs() {
                Some(dtype) => select::variants($op, dtype, arch),
                None => Vec::new(),
            }
        }

        fn problem(&self, p: &Self::Params) -> Option<String> {
            Some(format!("{}x{}x{}", p.m, p.n, p.k))
        }

        fn select(&self, p: &Self::Params, arch: Arch) -> Tiling {
            select::select(&self.problem_size(p), arch)
        }

        fn admits(&self, variant: Tiling, p: &Self::Params) -> bool {
            select::admits(&self.problem_size(p), variant)
        }

        fn geometry(&self, variant: Tiling, p: &Self::Params) -> Geometry {
            let problem = self.problem_size(p);
            geometry(variant, problem.rows, problem.columns, problem.splits)
        }

        fn smallest_grid(&self, variant: Tiling) -> Option<u32> {
            match variant {
                Tiling::Wgmma(wgmma) => wgmma::smallest_grid(wgmma),
                Tiling::Mma(_) | Tiling::CudaCores(_) => None,
            }
        }

        fn tensor_maps(&self, variant: Tiling, p: &Self::Params) -> Vec<TensorMap> {
            match variant {
                Tiling::Wgmma(wgmma) => {
                    wgmma::tensor_maps($op, wgmma, offset_of!(Self::Params, maps), self.layouts(p))
                }
                Tiling::Mma(_) | Tiling::CudaCores(_) => Vec::new(),
            }
        }
    };
}

/// The dtype of activations and weights alike; none where they differ: no kernel is built for that.
fn common(w: Format, x: Dtype) -> Option<Dtype> {
    w.dtype().filter(|w| *w == x)
}

impl GemmFwd {
    fn inputs(&self) -> Option<Dtype> {
        common(self.w, self.x)
    }

    fn problem_size(&self, p: &gemm_fwd_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.x, p.w, p.y, p.bias, p.residual]);
        ProblemSize { op: GemmOp::Fwd, rows: p.m, columns: p.n, depth: p.k, splits: 1, dtype: self.x, vectors }
    }

    fn layouts(&self, p: &gemm_fwd_params) -> [wgmma::MatrixLayout; 2] {
        [(offset_of!(gemm_fwd_params, x), [p.m, p.k], false), (offset_of!(gemm_fwd_params, w), [p.n, p.k], false)]
    }
}

impl GemmSwiglu {
    fn inputs(&self) -> Option<Dtype> {
        common(self.w, self.x)
    }

    /// A tile is as many columns of the gate as of the up projection.
    fn problem_size(&self, p: &gemm_swiglu_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.x, p.w, p.y, p.bias]);
        ProblemSize { op: GemmOp::Swiglu, rows: p.m, columns: 2 * p.n, depth: p.k, splits: 1, dtype: self.x, vectors }
    }

    fn layouts(&self, p: &gemm_swiglu_params) -> [wgmma::MatrixLayout; 2] {
        let w = offset_of!(gemm_swiglu_params, w);
        [(offset_of!(gemm_swiglu_params, x), [p.m, p.k], false), (w, [2 * p.n, p.k], false)]
    }
}

impl GemmDgrad {
    fn inputs(&self) -> Option<Dtype> {
        common(self.w, self.x)
    }

    fn problem_size(&self, p: &gemm_dgrad_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.dy, p.w, p.dx]);
        let splits = p.splits.max(1);
        ProblemSize { op: GemmOp::Dgrad, rows: p.m, columns: p.k, depth: p.n, splits, dtype: self.x, vectors }
    }

    /// Elements of `workspace`: whole tiles, however large they are.
    pub fn workspace(p: &gemm_dgrad_params) -> u64 {
        area(p.m.next_multiple_of(LARGEST_TILE), p.k.next_multiple_of(LARGEST_TILE))
    }

    /// Split-K: into how many parts to divide the depth, if that is faster, and how many `semaphores` that takes.
    pub fn division(&self, p: &gemm_dgrad_params, arch: Arch) -> Option<(u32, u64)> {
        select::division(&self.problem_size(p), arch)
    }

    fn layouts(&self, p: &gemm_dgrad_params) -> [wgmma::MatrixLayout; 2] {
        [(offset_of!(gemm_dgrad_params, dy), [p.m, p.n], false), (offset_of!(gemm_dgrad_params, w), [p.n, p.k], true)]
    }
}

impl GemmWgrad {
    fn inputs(&self) -> Option<Dtype> {
        Some(self.x)
    }

    fn problem_size(&self, p: &gemm_wgrad_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.dy, p.x, p.dw]);
        let splits = p.splits.max(1);
        ProblemSize { op: GemmOp::Wgrad, rows: p.n, columns: p.k, depth: p.m, splits, dtype: self.x, vectors }
    }

    /// Split-K: into how many parts to divide the depth, if that is faster, and how many `semaphores` that takes.
    pub fn division(&self, p: &gemm_wgrad_params, arch: Arch) -> Option<(u32, u64)> {
        select::division(&self.problem_size(p), arch)
    }

    fn layouts(&self, p: &gemm_wgrad_params) -> [wgmma::MatrixLayout; 2] {
        [(offset_of!(gemm_wgrad_params, dy), [p.m, p.n], true), (offset_of!(gemm_wgrad_params, x), [p.m, p.k], true)]
    }
}

/// f32 sums of k products in another order: the distance grows with sqrt(k), and cancellation makes single
/// elements worse than the norm.
fn tolerance(operand: &Operand) -> Tolerance {
    match operand.format {
        Format::Dense(Dtype::F32) => Tolerance { norm: 4e-6, element: 2e-5, absolute: 0.0 },
        format => Tolerance::of(format),
    }
}

impl Build for GemmFwd {
    gemm_variants!(GemmOp::Fwd, "simt/fwd.cu", "mma/fwd.cu", "wgmma/fwd.cu");
}

impl Kernel for GemmFwd {
    type Params = gemm_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let mut operands = vec![
            operand!(Read Self::Params, x: self.x, area(p.m, p.k)),
            operand!(Read Self::Params, w: self.w, area(p.n, p.k)),
            operand!(Write Self::Params, y: self.x, area(p.m, p.n)),
        ];
        if self.bias {
            operands.push(operand!(Read Self::Params, bias: self.x, p.n));
        }
        if self.residual {
            operands.push(operand!(Read Self::Params, residual: self.x, area(p.m, p.n)));
        }
        operands
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        flops(p.m, p.n, p.k)
    }

    /// Rows in memory are columns to a library: `y^T = w x^T`.
    fn product(&self, p: &Self::Params) -> Option<Product> {
        let dtype = self.inputs()?;
        Some(Product {
            a: Matrix { address: p.w, rows: p.k, columns: p.n, dtype },
            a_transposed: true,
            b: Matrix { address: p.x, rows: p.k, columns: p.m, dtype },
            b_transposed: false,
            d: Matrix { address: p.y, rows: p.n, columns: p.m, dtype },
            bias: self.bias.then_some(p.bias),
            addend: if self.residual { Addend::Matrix(p.residual) } else { Addend::Nothing },
        })
    }
}

impl Reference for GemmFwd {
    fn examples() -> Vec<Self> {
        let keys = [(true, false, Dtype::F32), (true, true, Dtype::Bf16), (false, true, Dtype::Bf16)];
        keys.map(|(bias, residual, x)| Self { bias, residual, w: x.into(), x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        SAMPLES.map(|(m, n, k)| Self::Params { m, n, k, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for GemmSwiglu {
    gemm_variants!(GemmOp::Swiglu, "simt/swiglu.cu", "mma/swiglu.cu", "wgmma/swiglu.cu", "swiglu.cuh");
}

impl Kernel for GemmSwiglu {
    type Params = gemm_swiglu_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let mut operands = vec![
            operand!(Read Self::Params, x: self.x, area(p.m, p.k)),
            operand!(Read Self::Params, w: self.w, 2 * area(p.n, p.k)),
            operand!(Write Self::Params, y: self.x, area(p.m, p.n)),
        ];
        if self.bias {
            operands.push(operand!(Read Self::Params, bias: self.x, 2 * p.n));
        }
        operands
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        flops(p.m, 2 * p.n, p.k)
    }
}

impl Reference for GemmSwiglu {
    fn examples() -> Vec<Self> {
        [(true, Dtype::F32), (true, Dtype::Bf16), (false, Dtype::Bf16)]
            .map(|(bias, x)| Self { bias, w: x.into(), x })
            .into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::swiglu(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        SAMPLES.map(|(m, n, k)| Self::Params { m, n, k, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for GemmDgrad {
    gemm_variants!(GemmOp::Dgrad, "simt/dgrad.cu", "mma/dgrad.cu", "wgmma/dgrad.cu");
}

impl Kernel for GemmDgrad {
    type Params = gemm_dgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let mut operands = vec![
            operand!(Read Self::Params, dy: self.x, area(p.m, p.n)),
            operand!(Read Self::Params, w: self.w, area(p.n, p.k)),
            operand!(Write Self::Params, dx: self.x, area(p.m, p.k)),
        ];
        if p.splits > 1 {
            operands.push(operand!(Scratch Self::Params, workspace: Dtype::F32, Self::workspace(p)));
            operands.push(
                operand!(ReadWrite Self::Params, semaphores: Dtype::U32, select::semaphores(&self.problem_size(p)))
                    .with(Content::Zeros),
            );
        }
        operands
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        flops(p.m, p.n, p.k)
    }

    /// `dx^T = w^T dy^T`.
    fn product(&self, p: &Self::Params) -> Option<Product> {
        let dtype = self.inputs()?;
        Some(Product {
            a: Matrix { address: p.w, rows: p.k, columns: p.n, dtype },
            a_transposed: false,
            b: Matrix { address: p.dy, rows: p.n, columns: p.m, dtype },
            b_transposed: false,
            d: Matrix { address: p.dx, rows: p.k, columns: p.m, dtype },
            bias: None,
            addend: Addend::Nothing,
        })
    }
}

impl Reference for GemmDgrad {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { w: x.into(), x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::dgrad(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let sample = |(m, n, k), splits| Self::Params { m, n, k, splits, ..Default::default() };
        SPLITS.into_iter().flat_map(|splits| SAMPLES.map(|shape| sample(shape, splits))).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, splits: 1, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for GemmWgrad {
    gemm_variants!(GemmOp::Wgrad, "simt/wgrad.cu", "mma/wgrad.cu", "wgmma/wgrad.cu");
}

impl Kernel for GemmWgrad {
    type Params = gemm_wgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let mut operands = vec![
            operand!(Read Self::Params, dy: self.x, area(p.m, p.n)),
            operand!(Read Self::Params, x: self.x, area(p.m, p.k)),
            operand!(Read Self::Params, micro: Dtype::U32, 2).with(Content::Micro),
            operand!(ReadWrite Self::Params, dw: Dtype::F32, area(p.n, p.k)),
        ];
        if p.splits > 1 {
            operands.push(
                operand!(ReadWrite Self::Params, semaphores: Dtype::U32, select::semaphores(&self.problem_size(p)))
                    .with(Content::Zeros),
            );
        }
        operands
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        flops(p.m, p.n, p.k)
    }

    /// `dw^T = x^T dy`.
    fn product(&self, p: &Self::Params) -> Option<Product> {
        let dtype = self.x;
        Some(Product {
            a: Matrix { address: p.x, rows: p.k, columns: p.m, dtype },
            a_transposed: false,
            b: Matrix { address: p.dy, rows: p.n, columns: p.m, dtype },
            b_transposed: true,
            d: Matrix { address: p.dw, rows: p.k, columns: p.n, dtype: Dtype::F32 },
            bias: None,
            addend: if p.accumulate == 0 { Addend::Accumulated } else { Addend::Matrix(p.dw) },
        })
    }
}

impl Reference for GemmWgrad {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::wgrad(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let sample = |(m, n, k), accumulate, splits| Self::Params { m, n, k, accumulate, splits, ..Default::default() };
        let variations = [0, 1].into_iter().flat_map(|accumulate| SPLITS.map(|splits| (accumulate, splits)));
        variations.flat_map(|(accumulate, splits)| SAMPLES.map(|shape| sample(shape, accumulate, splits))).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, splits: 1, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}
