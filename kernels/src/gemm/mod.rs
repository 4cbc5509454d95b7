//! The three matrix multiplications of a linear layer with weights `w` [n, k] (out features x in features).
//!
//! - `gemm.fwd`: `y = x w^T (+ bias) (+ residual)`
//! - `gemm.swiglu`: `y = silu(gate) up` with `(gate, up) = x w^T (+ bias)`; GELU by tanh with `gate=gelu_tanh`
//! - `gemm.dgrad`: `dx = dy w`
//! - `gemm.wgrad`: `dw (+)= dy^T x`
//!
//! Inputs have format x and weights format w, sums are f32 and are rounded once, at the store. m, n and k are run-time
//! arguments: one module serves every layer, batch and sequence length. `wgrad` overwrites in the first micro-batch of
//! a step and adds in later ones, or always with `accumulate` (later chunks of the head). `swiglu` is the gate and up
//! projection of a frozen model, which keeps neither gate nor up. It rounds both to x first, so that its bits are those
//! of `gemm.fwd` and `swiglu.fwd`. With few tiles and long sums, `mma/` divides the depth (split-K) into `splits`
//! parts, whose CTAs add to a tile one after the other; shorter sums also lose less to the rounding of tensor cores.
//!
//! With `experts`, weights are those of so many experts, one below the other, and rows lie by expert: `moe.sort` lists
//! tiles of each expert's rows, in which a row has the bits of the dense GEMM of its expert. No bias, no residual.
//!
//! With `w=i8,x=i8` both are rotated rows ([`crate::int8`]): `y = (x w^T) (scale_x scale_w) (+ bias) (+ residual)`,
//! bf16. Sums are i32 and exact: `k 127^2 < 2^31` for k up to [`crate::int8::MOST_DEPTH`], in any order, tile or
//! instruction. Later operations are f32, each rounded separately in this order, so outputs are bit-identical on every
//! architecture, in every variant and on the host, except for the exponential in `swiglu`. A pair of values is one of
//! the 16-bit elements that the mainloops move: k is a multiple of 16, n of 8, addresses of 16 bytes; copies fill in
//! zeros beyond k.
//!
//! bf16 runs on tensor cores (`wgmma/` on sm_90a, `mma/` elsewhere) if the rows of all operands are whole vectors of 16
//! bytes; everything else on CUDA cores (`simt/`).
//!
//! Sources: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (tiling); NVIDIA,
//! CUTLASS, "Efficient GEMM in CUDA" (pipelines on tensor cores).

mod candidates;
mod host;
mod model;
mod op;
mod rates;
pub(crate) mod select;
pub(crate) mod variants;
pub(crate) mod wgmma;

pub use crate::abi::{GemmDgrad, GemmFwd, GemmSwiglu, GemmWgrad};
use std::mem::offset_of;

use crate::abi::{gemm_dgrad_params, gemm_fwd_params, gemm_swiglu_params, gemm_wgrad_params, micro_scalars};
use crate::blas::Matrix;
use crate::card::Card;
use crate::host::Views;
use crate::{
    Addend, Arch, Batch, BlasGemm, Build, Dtype, Flag, Format, Gate, Geometry, Operand, Reference, Source, TensorMap,
    Tolerance, source,
};

use crate::moe::{EXPERT_TILE, list_entries, most_tiles};
use select::{GemmOp, ProblemSize};
use variants::{FewRows, Mma, Tiling};

pub(crate) use variants::CudaCores;

pub use select::splits_k;
pub use variants::on_tensor_cores;

/// Small, ragged and tile-crossing shapes (m, n, k): for CUDA cores, then for whole vectors; the last two are deep
/// enough to be divided by depth, in dgrad and wgrad.
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

/// Like [`SAMPLES`], in int8; the last are several slices deep, and several tiles wide and high.
const INT8_SAMPLES: [(u32, u32, u32); 6] =
    [(1, 8, 16), (33, 72, 48), (130, 264, 272), (70, 136, 1296), (300, 520, 528), (520, 264, 144)];

/// One part, and more parts than a shallow GEMM has slices.
const SPLITS: [u32; 2] = [1, 3];

/// Multiple of the rows and columns of every tile of `mma/`.
const LARGEST_TILE: u32 = 256;

pub(crate) fn area(rows: u32, columns: u32) -> u64 {
    u64::from(rows) * u64::from(columns)
}

/// True if rows of these lengths, in bf16, and these addresses are whole 16-byte vectors.
fn vectors(rows: &[u32], addresses: &[u64]) -> bool {
    rows.iter().all(|elems| elems.is_multiple_of(8)) && addresses.iter().all(|address| address.is_multiple_of(16))
}

pub(crate) fn geometry(op: GemmOp, variant: Tiling, (rows, columns): (u32, u32), splits: u32) -> Geometry {
    let (m, n) = variant.tile();
    let (tiles_m, tiles_n) = (rows.div_ceil(m), columns.div_ceil(n));
    match variant {
        Tiling::Wgmma(wgmma) => wgmma::geometry(op, wgmma, rows, columns),
        Tiling::Mma(Mma { stages, threads, tile_k, .. }) | Tiling::FewRows(FewRows { stages, threads, tile_k, .. }) => {
            let slice_bytes = (m + n) * tile_k * 2;
            Geometry { shared_bytes: slice_bytes * stages, ..Geometry::linear(tiles_m * tiles_n * splits, threads) }
        }
        Tiling::CudaCores(cuda_cores) => {
            let lists = if op.is_of_experts() { rows / EXPERT_TILE } else { 1 };
            Geometry { grid: [tiles_n, tiles_m / lists, lists], ..Geometry::linear(1, cuda_cores.threads) }
        }
    }
}

/// Declares a source with the headers of the family that it includes.
macro_rules! gemm_source {
    ($folder:literal, $file:literal) => {
        source!(
            "gemm",
            in $folder, $file,
            "raster.cuh",
            "experts.cuh",
            "scale.cuh",
            "swiglu.cuh",
            "simt/mainloop.cuh",
            "mma/operand.cuh",
            "mma/mainloop.cuh",
            "mma/split_k.cuh",
            "mma/epilogue.cuh",
            "mma/work.cuh",
            "mma/int8/scale.cuh",
            "wgmma/scheduler.cuh",
            "wgmma/cluster_reduction.cuh",
            "wgmma/mainloop.cuh",
            "wgmma/multicast.cuh",
            "wgmma/experts.cuh",
            "wgmma/forward.cuh",
            "wgmma/epilogue.cuh",
            "wgmma/gated.cuh",
            "wgmma/int8/epilogue.cuh"
        )
    };
}

/// Selects a kernel's source: for CUDA cores, or one of two for tensor cores.
macro_rules! dense_source {
    ($variant:expr, $file:literal) => {
        match $variant {
            Tiling::Wgmma(_) => gemm_source!("wgmma/", $file),
            Tiling::Mma(_) | Tiling::FewRows(_) => gemm_source!("mma/", $file),
            Tiling::CudaCores(_) => gemm_source!("simt/", $file),
        }
    };
}

/// Selects the source of a kernel that reads int8: on tensor cores, with the same mainloops.
macro_rules! int8_source {
    ($variant:expr, $file:literal) => {
        match $variant {
            Tiling::Wgmma(_) => gemm_source!("wgmma/int8/", $file),
            Tiling::Mma(_) | Tiling::FewRows(_) | Tiling::CudaCores(_) => gemm_source!("mma/int8/", $file),
        }
    };
}

/// Implements [`Build`] for a kernel of the family.
macro_rules! gemm_variants {
    (|$key:ident, $variant:ident| $source:expr) => {
        type Variant = Tiling;

        fn source(&self, $variant: Tiling) -> Source {
            let $key = self;
            $source
        }

        fn variants(&self, arch: Arch) -> Vec<Tiling> {
            match self.inputs() {
                Some(dtype) => select::variants(self.gemm_op(), dtype, arch),
                None => Vec::new(),
            }
        }

        fn problem(&self, p: &Self::Params) -> Option<String> {
            Some(format!("{}x{}x{}", p.m, p.n, p.k))
        }

        fn select_for(&self, p: &Self::Params, arch: Arch, card: Card) -> Tiling {
            select::select_for(&self.problem_size(p), arch, card)
        }

        fn sums_as(&self, selected: Tiling, other: Tiling) -> bool {
            select::sums_as(self.gemm_op(), selected, other)
        }

        fn select(&self, p: &Self::Params, arch: Arch) -> Tiling {
            select::select(&self.problem_size(p), arch)
        }

        fn admits(&self, variant: Tiling, p: &Self::Params) -> bool {
            select::admits(&self.problem_size(p), variant)
        }

        fn geometry(&self, variant: Tiling, p: &Self::Params) -> Geometry {
            let problem = self.problem_size(p);
            let rows = match problem.experts {
                0 => problem.rows,
                experts => most_tiles(problem.rows, experts) * EXPERT_TILE,
            };
            geometry(self.gemm_op(), variant, (rows, problem.columns), problem.splits)
        }

        fn smallest_grid(&self, variant: Tiling) -> Option<u32> {
            match variant {
                Tiling::Wgmma(wgmma) => wgmma::smallest_grid(self.gemm_op(), wgmma),
                Tiling::Mma(_) | Tiling::FewRows(_) | Tiling::CudaCores(_) => None,
            }
        }

        fn tensor_maps(&self, variant: Tiling, p: &Self::Params) -> Vec<TensorMap> {
            match variant {
                Tiling::Wgmma(wgmma) => {
                    wgmma::tensor_maps(self.gemm_op(), wgmma, offset_of!(Self::Params, maps), self.layouts(p))
                }
                Tiling::Mma(_) | Tiling::FewRows(_) | Tiling::CudaCores(_) => Vec::new(),
            }
        }
    };
}

/// Returns the common dtype of activations and weights; none if they differ: no kernel is built for that.
fn common(w: Format, x: Format) -> Option<Dtype> {
    w.dtype().filter(|w| x == *w)
}

/// Returns the elements that the mainloops move of a row of k: pairs of 8-bit values.
fn depth(x: Format, k: u32) -> u32 {
    if x == Dtype::I8 { k / 2 } else { k }
}

/// Returns sample shapes (m, n, k) of a GEMM with inputs in x.
fn shapes(x: Format) -> &'static [(u32, u32, u32)] {
    match x.dtype() {
        Some(Dtype::I8) => &INT8_SAMPLES,
        // Several of the largest tiles on CUDA cores.
        Some(Dtype::F32) => &SAMPLES[..7],
        _ => &SAMPLES,
    }
}

/// Returns a launch's `experts_of`: for the list of so many experts of a layer.
pub fn experts_of(list: u32, layer: u32) -> u32 {
    layer << 16 | list
}

/// Returns the matrices of a launch: one, or one for each expert of the list.
fn matrices(experts_of: u32) -> u32 {
    (experts_of & 0xffff).max(1)
}

/// Returns about how many of m rows a launch multiplies: all, or those of a list if experts have equally many.
fn listed_rows(m: u32, experts_of: u32) -> u64 {
    u64::from(m) * u64::from(matrices(experts_of)) / u64::from(experts_of >> 16).max(1)
}

/// Returns sample launches (m, n, k, experts_of) of a forward GEMM with inputs in x.
fn samples(op: GemmOp, x: Format) -> impl Iterator<Item = (u32, u32, u32, u32)> {
    let experts =
        if op.is_of_experts() { [(3, 3), (5, 7), (4, 4)].map(|(list, layer)| experts_of(list, layer)) } else { [0; 3] };
    shapes(x).iter().zip(experts.into_iter().cycle()).map(|((m, n, k), experts_of)| (*m, *n, *k, experts_of))
}

/// Returns the size of a GEMM with inputs in x. In int8, pairs of values and of scales must be whole vectors too.
fn problem_size(
    (op, experts): (GemmOp, u32),
    x: Format,
    (rows, columns, k): (u32, u32, u32),
    vectors: bool,
    w_scale: u64,
) -> ProblemSize {
    let dtype = x.dtype().unwrap_or(Dtype::F32);
    let vectors = vectors && (x != Dtype::I8 || k.is_multiple_of(16) && w_scale.is_multiple_of(8));
    ProblemSize { op, rows, columns, depth: depth(x, k), splits: 1, experts, dtype, vectors }
}

impl GemmFwd {
    fn gemm_op(&self) -> GemmOp {
        if self.experts.is_set() { GemmOp::FwdExperts } else { GemmOp::Fwd }
    }

    pub(crate) fn matrices(&self, p: &gemm_fwd_params) -> u64 {
        matrices(p.experts_of).into()
    }

    pub(crate) fn listed_rows(&self, p: &gemm_fwd_params) -> u64 {
        listed_rows(p.m, p.experts_of)
    }

    /// Returns the entries of the list of tiles of experts.
    pub(crate) fn list(&self, p: &gemm_fwd_params) -> u64 {
        list_entries(p.m, matrices(p.experts_of)).into()
    }

    fn inputs(&self) -> Option<Dtype> {
        common(self.w, self.x)
    }

    fn problem_size(&self, p: &gemm_fwd_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.x, p.w, p.y, p.bias, p.residual]);
        let op = self.gemm_op();
        problem_size((op, op.experts(matrices(p.experts_of))), self.x, (p.m, p.n, p.k), vectors, p.w_scale)
    }

    fn layouts(&self, p: &gemm_fwd_params) -> [wgmma::MatrixLayout; 2] {
        let (depth, matrices, w) = (depth(self.x, p.k), matrices(p.experts_of), offset_of!(gemm_fwd_params, w));
        [(offset_of!(gemm_fwd_params, x), [p.m, depth], false), (w, [matrices * p.n, depth], false)]
    }
}

impl GemmSwiglu {
    fn gemm_op(&self) -> GemmOp {
        if self.experts.is_set() { GemmOp::SwigluExperts } else { GemmOp::Swiglu }
    }

    pub(crate) fn matrices(&self, p: &gemm_swiglu_params) -> u64 {
        matrices(p.experts_of).into()
    }

    pub(crate) fn listed_rows(&self, p: &gemm_swiglu_params) -> u64 {
        listed_rows(p.m, p.experts_of)
    }

    /// Returns the entries of the list of tiles of experts.
    pub(crate) fn list(&self, p: &gemm_swiglu_params) -> u64 {
        list_entries(p.m, matrices(p.experts_of)).into()
    }

    fn inputs(&self) -> Option<Dtype> {
        common(self.w, self.x)
    }

    /// A tile is as many columns of the gate as of the up projection.
    fn problem_size(&self, p: &gemm_swiglu_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.x, p.w, p.y, p.bias]);
        let op = self.gemm_op();
        problem_size((op, op.experts(matrices(p.experts_of))), self.x, (p.m, 2 * p.n, p.k), vectors, p.w_scale)
    }

    fn layouts(&self, p: &gemm_swiglu_params) -> [wgmma::MatrixLayout; 2] {
        let (depth, matrices, w) = (depth(self.x, p.k), matrices(p.experts_of), offset_of!(gemm_swiglu_params, w));
        [(offset_of!(gemm_swiglu_params, x), [p.m, depth], false), (w, [matrices * 2 * p.n, depth], false)]
    }
}

impl GemmDgrad {
    fn gemm_op(&self) -> GemmOp {
        GemmOp::Dgrad
    }

    fn inputs(&self) -> Option<Dtype> {
        common(self.w, self.x.into())
    }

    fn problem_size(&self, p: &gemm_dgrad_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.dy, p.w, p.dx]);
        let splits = p.splits.max(1);
        ProblemSize {
            op: GemmOp::Dgrad,
            rows: p.m,
            columns: p.k,
            depth: p.n,
            splits,
            experts: 0,
            dtype: self.x,
            vectors,
        }
    }

    /// Returns the elements of `workspace`: whole tiles of any size.
    pub fn workspace(&self, p: &gemm_dgrad_params) -> u64 {
        area(p.m.next_multiple_of(LARGEST_TILE), p.k.next_multiple_of(LARGEST_TILE))
    }

    /// Returns the semaphores of a launch that splits K.
    pub(crate) fn semaphores(&self, p: &gemm_dgrad_params) -> u64 {
        select::semaphores(&self.problem_size(p))
    }

    /// Returns the number of splits of K, if splitting is faster, and of `semaphores` that they take.
    pub fn division(&self, p: &gemm_dgrad_params, arch: Arch) -> Option<(u32, u64)> {
        select::division(&self.problem_size(p), arch)
    }

    fn layouts(&self, p: &gemm_dgrad_params) -> [wgmma::MatrixLayout; 2] {
        [(offset_of!(gemm_dgrad_params, dy), [p.m, p.n], false), (offset_of!(gemm_dgrad_params, w), [p.n, p.k], true)]
    }
}

impl GemmWgrad {
    fn gemm_op(&self) -> GemmOp {
        GemmOp::Wgrad
    }

    fn inputs(&self) -> Option<Dtype> {
        Some(self.x)
    }

    fn problem_size(&self, p: &gemm_wgrad_params) -> ProblemSize {
        let vectors = vectors(&[p.n, p.k], &[p.dy, p.x, p.dw]);
        let splits = p.splits.max(1);
        ProblemSize {
            op: GemmOp::Wgrad,
            rows: p.n,
            columns: p.k,
            depth: p.m,
            splits,
            experts: 0,
            dtype: self.x,
            vectors,
        }
    }

    /// Returns the semaphores of a launch that splits K.
    pub(crate) fn semaphores(&self, p: &gemm_wgrad_params) -> u64 {
        select::semaphores(&self.problem_size(p))
    }

    /// Returns the number of splits of K, if splitting is faster, and of `semaphores` that they take.
    pub fn division(&self, p: &gemm_wgrad_params, arch: Arch) -> Option<(u32, u64)> {
        select::division(&self.problem_size(p), arch)
    }

    fn layouts(&self, p: &gemm_wgrad_params) -> [wgmma::MatrixLayout; 2] {
        [(offset_of!(gemm_wgrad_params, dy), [p.m, p.n], true), (offset_of!(gemm_wgrad_params, x), [p.m, p.k], true)]
    }
}

/// Allows for f32 sums over a depth of k in another order: the distance grows with sqrt(k), and cancellation makes
/// single elements worse than the norm.
pub(crate) fn tolerance(operand: &Operand) -> Tolerance {
    match operand.format {
        Format::Dense(Dtype::F32) => Tolerance { norm: 4e-6, element: 2e-5, absolute: 0.0 },
        format => Tolerance::of(format),
    }
}

impl Build for GemmFwd {
    gemm_variants!(|key, variant| {
        if key.x == Dtype::I8 { int8_source!(variant, "fwd.cu") } else { dense_source!(variant, "fwd.cu") }
    });

    /// A library's columns are rows in memory: `y^T = w x^T`.
    fn blas_gemm(&self, p: &Self::Params) -> Option<BlasGemm> {
        let dtype = self.inputs().filter(|dtype| *dtype != Dtype::I8 && !self.experts.is_set())?;
        Some(BlasGemm {
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
        let dense = [(true, false, Dtype::F32), (true, true, Dtype::Bf16), (false, true, Dtype::Bf16)];
        let int8 = [(false, false, Dtype::I8), (true, false, Dtype::I8), (false, true, Dtype::I8)];
        let keys = dense.into_iter().chain(int8);
        let of_experts = [Dtype::F32, Dtype::Bf16, Dtype::I8].map(|x| {
            let x = x.into();
            Self { bias: false, experts: Flag(true), residual: false, w: x, x }
        });
        let dense = |(bias, residual, x): (bool, bool, Dtype)| {
            let x = x.into();
            Self { bias, experts: Flag(false), residual, w: x, x }
        };
        keys.map(dense).chain(of_experts).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let samples = samples(self.gemm_op(), self.x);
        samples.map(|(m, n, k, experts_of)| Self::Params { m, n, k, experts_of, ..Default::default() }).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        if self.x == Dtype::I8 { Tolerance::EXACT } else { tolerance(operand) }
    }
}

impl Build for GemmSwiglu {
    gemm_variants!(|key, variant| {
        if key.x == Dtype::I8 { int8_source!(variant, "swiglu.cu") } else { dense_source!(variant, "swiglu.cu") }
    });
}

impl Reference for GemmSwiglu {
    fn examples() -> Vec<Self> {
        let silu =
            [(true, Dtype::F32), (true, Dtype::Bf16), (false, Dtype::Bf16), (false, Dtype::I8), (true, Dtype::I8)];
        let gelu = [(false, Dtype::F32), (false, Dtype::Bf16), (false, Dtype::I8)];
        let keys = silu.map(|key| (Gate::Silu, key)).into_iter().chain(gelu.map(|key| (Gate::GeluTanh, key)));
        let of_experts = [Dtype::F32, Dtype::Bf16, Dtype::I8].map(|x| (Gate::Silu, (false, x), Flag(true)));
        let keys = keys.map(|(gate, key)| (gate, key, Flag(false))).chain(of_experts);
        keys.map(|(gate, (bias, x), experts)| Self { bias, experts, gate, w: x.into(), x: x.into() }).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::swiglu(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let samples = samples(self.gemm_op(), self.x);
        samples.map(|(m, n, k, experts_of)| Self::Params { m, n, k, experts_of, ..Default::default() }).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for GemmDgrad {
    gemm_variants!(|_key, variant| dense_source!(variant, "dgrad.cu"));

    /// `dx^T = w^T dy^T`.
    fn blas_gemm(&self, p: &Self::Params) -> Option<BlasGemm> {
        let dtype = self.inputs()?;
        Some(BlasGemm {
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
        SPLITS.into_iter().flat_map(|splits| shapes(self.w).iter().map(move |shape| sample(*shape, splits))).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, splits: 1, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for GemmWgrad {
    gemm_variants!(|_key, variant| dense_source!(variant, "wgrad.cu"));

    /// `dw^T = x^T dy`.
    fn blas_gemm(&self, p: &Self::Params) -> Option<BlasGemm> {
        let dtype = self.x;
        Some(BlasGemm {
            a: Matrix { address: p.x, rows: p.k, columns: p.m, dtype },
            a_transposed: false,
            b: Matrix { address: p.dy, rows: p.n, columns: p.m, dtype },
            b_transposed: true,
            d: Matrix { address: p.dw, rows: p.k, columns: p.n, dtype: Dtype::F32 },
            bias: None,
            addend: match p.accumulate {
                0 => Addend::Accumulated(p.micro + offset_of!(micro_scalars, accumulate) as u64),
                _ => Addend::Matrix(p.dw),
            },
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
        let shapes = shapes(self.x.into());
        variations.flat_map(|(add, splits)| shapes.iter().map(move |shape| sample(*shape, add, splits))).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, splits: 1, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}
