//! Which variant a GEMM is built as: a table of tiles for each architecture, and the time each would take.

use super::variants::{CudaCores, Mma, Tiling, Wgmma};
use crate::{Arch, Dtype, Fixed};

/// Which of the GEMMs: their operands have other layouts, so other tiles suit them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GemmOp {
    Fwd,
    Swiglu,
    Dgrad,
    Wgrad,
}

impl GemmOp {
    /// Whether the CTAs of a `wgmma` cluster multicast what their tiles have in common, and do not split K: forward, and
    /// where tiles of 64 rows are many enough to be left whole.
    pub fn multicasts(self, variant: Wgmma) -> bool {
        matches!(self, GemmOp::Fwd | GemmOp::Swiglu) || variant.tile_m == 64
    }
}

/// The problem that one launch solves: a result of rows x columns, and what it is computed from.
#[derive(Clone, Copy)]
pub(crate) struct ProblemSize {
    pub op: GemmOp,
    pub rows: u32,
    pub columns: u32,
    /// Length of the sums: K of the GEMM, whichever dimension of the layer that is.
    pub depth: u32,
    /// Split-K: parts of the depth, each a CTA's.
    pub splits: u32,
    /// Dtype of the inputs.
    pub dtype: Dtype,
    /// Whether all rows of all operands are whole 16-byte vectors on 16-byte addresses.
    pub vectors: bool,
}

/// 256 threads in a 16 x 16 grid.
macro_rules! cuda_cores {
    ($tile:literal) => {
        Tiling::CudaCores(CudaCores { threads: 256, tile: $tile })
    };
}

macro_rules! mma {
    ($tile_m:literal x $tile_n:literal x $tile_k:literal, warp_n $warp_n:literal, stages $stages:literal) => {
        Tiling::Mma(Mma {
            mma: Fixed,
            stages: $stages,
            threads: $tile_m / 64 * ($tile_n / $warp_n) * 32,
            tile_k: $tile_k,
            tile_m: $tile_m,
            tile_n: $tile_n,
            warp_n: $warp_n,
        })
    };
}

macro_rules! wgmma {
    ($tile_m:literal x $tile_n:literal x $tile_k:literal, cluster $cluster:literal) => {
        Tiling::Wgmma(Wgmma {
            cluster: $cluster,
            shared_bytes: Arch::Sm90a.shared_bytes_per_block(),
            threads: 384,
            tile_k: $tile_k,
            tile_m: $tile_m,
            tile_n: $tile_n,
            wgmma: Fixed,
        })
    };
}

/// The variants an architecture has for inputs of a dtype, and how fast each multiplies when every multiprocessor is
/// full: a share of the fastest, in percent.
struct Table {
    multiprocessors: u64,
    variants: &'static [Tiling],
    rates: &'static [u32],
}

static F32: &[Tiling] = &[cuda_cores!(128), cuda_cores!(64)];

/// 96 and 48 KiB of shared memory a CTA: one or two of them on a multiprocessor that has 100 KiB. Not measured.
static BF16: &[Tiling] = &[
    mma!(128 x 256 x 32, warp_n 64, stages 4),
    mma!(128 x 128 x 32, warp_n 64, stages 3),
    mma!(128 x 64 x 32, warp_n 32, stages 4),
    cuda_cores!(64),
];

/// An H200 has room for two CTAs of 96 KiB: deeper slices meet at a barrier less often. The others' variants are here so
/// that they are checked on hardware.
static BF16_H200: &[Tiling] = &[
    mma!(256 x 128 x 32, warp_n 64, stages 4),
    mma!(128 x 128 x 64, warp_n 64, stages 3),
    mma!(128 x 64 x 32, warp_n 32, stages 4),
    mma!(128 x 256 x 32, warp_n 64, stages 4),
    mma!(128 x 128 x 32, warp_n 64, stages 3),
    cuda_cores!(64),
];

/// Outputs of many tokens: no tile is faster than another of these, so that which fits the columns and the waves is.
static HOPPER_FWD: &[Tiling] = &[
    wgmma!(128 x 256 x 64, cluster 1),
    wgmma!(128 x 224 x 64, cluster 1),
    wgmma!(128 x 192 x 64, cluster 1),
    cuda_cores!(64),
];

/// The same, in halves of whole chunks of 32 columns. Most of a frozen model's arithmetic: a pair of CTAs copies the
/// weights they share once, which leaves power for multiplying.
static HOPPER_SWIGLU: &[Tiling] =
    &[wgmma!(128 x 256 x 64, cluster 2), wgmma!(128 x 192 x 64, cluster 2), cuda_cores!(64)];

/// The same; the head's is few tiles, deep in the vocabulary.
static HOPPER_DGRAD: &[Tiling] = &[
    wgmma!(128 x 256 x 64, cluster 2),
    wgmma!(128 x 224 x 64, cluster 2),
    wgmma!(128 x 192 x 64, cluster 2),
    cuda_cores!(64),
];

/// Weights: few tiles, deep in the tokens.
static HOPPER_WGRAD: &[Tiling] = &[
    wgmma!(128 x 224 x 64, cluster 2),
    wgmma!(128 x 192 x 64, cluster 2),
    wgmma!(128 x 128 x 64, cluster 2),
    wgmma!(64 x 128 x 64, cluster 2),
    cuda_cores!(64),
];

/// int8: pairs of values are elements of 16 bits, so tiles and depths are those of bf16 in bytes. A pair of CTAs copies the weights
/// once: two or three percent of a deep product.
static HOPPER_INT8_FWD: &[Tiling] = &[
    wgmma!(128 x 256 x 64, cluster 2),
    wgmma!(128 x 224 x 64, cluster 2),
    wgmma!(128 x 192 x 64, cluster 2),
    wgmma!(128 x 128 x 64, cluster 2),
];

/// The variants of a table but that for CUDA cores, its last.
fn tensor_cores(variants: &'static [Tiling]) -> &'static [Tiling] {
    match variants {
        [tensor_cores @ .., Tiling::CudaCores(_)] => tensor_cores,
        _ => unreachable!("the last variant of a table is for CUDA cores"),
    }
}

/// Rates on an H200 are measured. The others have a quarter of its tensor throughput a multiprocessor: neither shared
/// memory nor L2 holds back their smaller tiles as much.
fn table(op: GemmOp, dtype: Dtype, arch: Arch) -> Table {
    let (variants, rates): (_, &[u32]) = match (dtype, arch) {
        (Dtype::Bf16, Arch::Sm90a) => match op {
            GemmOp::Fwd => (HOPPER_FWD, &[100, 100, 100, 3]),
            GemmOp::Swiglu => (HOPPER_SWIGLU, &[100, 100, 3]),
            GemmOp::Dgrad => (HOPPER_DGRAD, &[100, 100, 100, 3]),
            GemmOp::Wgrad => (HOPPER_WGRAD, &[100, 100, 100, 90, 3]),
        },
        (Dtype::I8, Arch::Sm90a) => match op {
            GemmOp::Swiglu => (tensor_cores(HOPPER_SWIGLU), &[100, 97]),
            _ => (HOPPER_INT8_FWD, &[100, 95, 92, 88]),
        },
        (Dtype::I8, Arch::Sm90Portable) => (tensor_cores(BF16_H200), &[96, 100, 80, 98, 92]),
        (Dtype::I8, _) => (tensor_cores(BF16), &[100, 100, 90]),
        // dgrad's operands leave no registers for 256 rows.
        (Dtype::Bf16, Arch::Sm90Portable) if op == GemmOp::Dgrad => (&BF16_H200[1..], &[100, 80, 90, 85, 3]),
        (Dtype::Bf16, Arch::Sm90Portable) => (BF16_H200, &[108, 100, 80, 90, 85, 3]),
        (Dtype::Bf16, _) => (BF16, &[100, 100, 90, 3]),
        _ => (F32, &[100, 70]),
    };
    Table { multiprocessors: arch.multiprocessors().into(), variants, rates }
}

pub(crate) fn variants(op: GemmOp, dtype: Dtype, arch: Arch) -> Vec<Tiling> {
    table(op, dtype, arch).variants.iter().copied().filter(|variant| !narrow(op, *variant)).collect()
}

/// Whether a warp's columns are too few for the epilogue, which stores 32 at a time, and of a gated product half of what it has
/// summed.
fn narrow(op: GemmOp, variant: Tiling) -> bool {
    op == GemmOp::Swiglu && matches!(variant, Tiling::Mma(mma) if mma.warp_n < 64)
}

/// bf16 runs on tensor cores wherever it can be copied in vectors.
pub(crate) fn admits(problem: &ProblemSize, variant: Tiling) -> bool {
    let narrow = narrow(problem.op, variant);
    let tensor_cores = !matches!(variant, Tiling::CudaCores(_));
    match problem.dtype {
        Dtype::Bf16 | Dtype::I8 => !narrow && tensor_cores == problem.vectors,
        _ => true,
    }
}

/// Depth in whose time a CTA runs prologue and epilogue. Where two CTAs share an SM, the other's mainloop hides half of it.
/// This and the next two are fitted to what `precast bench --tune FILE` measures on an H200 (`tuned.txt`).
const BLOCK_DEPTH: u64 = 256;
/// Depth in whose time the CTAs of a cluster reduce their accumulators.
const REDUCTION_DEPTH: u64 = 500;
/// Depth in whose time one split of a tile waits for another to add.
const SEMAPHORE_DEPTH: u64 = 160;
/// Tensor cores round accumulators towards zero, 1.1e-9 of the norm per step of the depth: at this many it is 3.4e-6, within
/// the 4e-6 that a result in f32 may be off.
const EXACT_DEPTH: u32 = 3072;
/// Most splits of a tile.
const MOST_SPLITS: u32 = 8;
/// Workspace that stays in L2 beside the operands: a sixth of an H200's 50 MiB.
const WORKSPACE_BYTES: u64 = 8 << 20;

/// Time of a GEMM, if every multiprocessor computes as many tiles as the busiest; those left over by whole waves may
/// be divided among clusters that do not share columns.
fn time(problem: &ProblemSize, variant: Tiling, rate: u32, multiprocessors: u64) -> u64 {
    let (m, n) = variant.tile();
    let splits = if matches!(variant, Tiling::Mma(_)) { u64::from(problem.splits) } else { 1 };
    // CTAs of a cluster that share copies, and those that divide the depth.
    let (sharers, cluster) = match variant {
        Tiling::Wgmma(wgmma) if problem.op.multicasts(wgmma) => (wgmma.cluster, 1),
        Tiling::Wgmma(wgmma) => (1, u64::from(wgmma.cluster)),
        Tiling::Mma(_) | Tiling::CudaCores(_) => (1, 1),
    };
    let tiles = u64::from(problem.rows.div_ceil(m).next_multiple_of(sharers)) * u64::from(problem.columns.div_ceil(n));
    let (waves, rest) = (tiles * splits / multiprocessors, tiles * splits % multiprocessors);
    let rounds = rest.div_ceil(multiprocessors / cluster).min(cluster); // each a part of a wave
    let pairs = matches!(variant, Tiling::Mma(mma) if mma.threads == 128);
    let depth = u64::from(problem.depth).div_ceil(splits) + if pairs { BLOCK_DEPTH / 2 } else { BLOCK_DEPTH };
    let reduction = if rounds > 0 && rounds < cluster { REDUCTION_DEPTH } else { 0 };
    let waits = (splits - 1) * SEMAPHORE_DEPTH + reduction;
    // One of a pair alone takes three quarters of the time of both.
    let halves = 2 * (waves * cluster + rounds) + u64::from(pairs && (waves + rounds) % 2 == 1);
    (halves * depth / (2 * cluster) + waits) * u64::from(m * n) * 100 / u64::from(rate)
}

/// The variant that takes the least time, and that time. The first of equals.
fn fastest(problem: &ProblemSize, arch: Arch) -> (Tiling, u64) {
    let Table { multiprocessors, variants, rates } = table(problem.op, problem.dtype, arch);
    let admitted = variants.iter().zip(rates).filter(|(variant, _)| admits(problem, **variant));
    let timed = admitted.map(|(variant, rate)| (*variant, time(problem, *variant, *rate, multiprocessors)));
    timed.min_by_key(|(_, time)| *time).expect("every GEMM has a variant that admits it")
}

/// The variant that takes the least time.
pub(crate) fn select(problem: &ProblemSize, arch: Arch) -> Tiling {
    fastest(problem, arch).0
}

/// Whether GEMMs of a dtype are built so on an architecture that CTAs can split K. `wgmma` has means of its own,
/// and the simulated GPU adds up at once.
pub fn splits_k(dtype: Dtype, arch: Arch) -> bool {
    let table = table(GemmOp::Wgrad, dtype, arch);
    arch != Arch::Sim && table.variants.iter().any(|variant| matches!(variant, Tiling::Mma(_)))
}

/// Into how many parts to divide the depth, each a CTA's, if that is faster on an architecture; and how many `semaphores` that
/// takes.
pub(crate) fn division(problem: &ProblemSize, arch: Arch) -> Option<(u32, u64)> {
    splits(problem, arch).map(|splits| (splits, semaphores(problem)))
}

fn splits(problem: &ProblemSize, arch: Arch) -> Option<u32> {
    let exact = matches!(problem.op, GemmOp::Wgrad);
    let sums_bytes = 4 * u64::from(problem.rows) * u64::from(problem.columns);
    let divisible = splits_k(problem.dtype, arch) && problem.vectors;
    if !divisible || (!exact && sums_bytes > WORKSPACE_BYTES) {
        return None;
    }
    let least = if exact { problem.depth.div_ceil(EXACT_DEPTH).min(MOST_SPLITS) } else { 1 };
    let time = |splits: &u32| fastest(&ProblemSize { splits: *splits, ..*problem }, arch).1;
    (least.max(1)..=MOST_SPLITS).min_by_key(time).filter(|splits| *splits > 1)
}

/// Elements of `semaphores`: tiles, where they are smallest.
pub(crate) fn semaphores(problem: &ProblemSize) -> u64 {
    u64::from(problem.rows.div_ceil(128)) * u64::from(problem.columns.div_ceil(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_the_waves_of_an_h200() {
        let width = |op, (rows, columns)| {
            let problem = ProblemSize { op, rows, columns, depth: 8192, splits: 1, dtype: Dtype::Bf16, vectors: true };
            select(&problem, Arch::Sm90a).tile().1
        };
        // Outputs of 8192 tokens: student's qkv, o and down, gate and up; teacher's qkv.
        assert_eq!([1152, 896, 9728, 2048].map(|n| width(GemmOp::Fwd, (8192, n))), [192, 224, 192, 256]);
        // Weights: student's qkv, o, gate and up, down, head.
        let weights = [(1152, 896), (896, 896), (9728, 896), (896, 4864), (151_936, 896)];
        assert_eq!(weights.map(|shape| width(GemmOp::Wgrad, shape)), [128, 128, 224, 192, 224]);
    }

    #[test]
    fn int8_takes_tiles_that_fit_and_nothing_but_whole_vectors() {
        let width = |op, (columns, depth): (u32, u32)| {
            let problem =
                ProblemSize { op, rows: 8192, columns, depth: depth / 2, splits: 1, dtype: Dtype::I8, vectors: true };
            select(&problem, Arch::Sm90a).tile().1
        };
        // Student: o, down; gradients of qkv's inputs, of those of gate and up.
        assert_eq!([896, 4864, 1152, 9728].map(|depth| width(GemmOp::Fwd, (896, depth))), [224; 4]);
        // Teachers of 1.5B and 7B: down; gate and up.
        assert_eq!([(1536, 8960), (3584, 18_944)].map(|shape| width(GemmOp::Fwd, shape)), [256; 2]);
        assert_eq!([(17_920, 1536), (37_888, 3584)].map(|shape| width(GemmOp::Swiglu, shape)), [256; 2]);
        let ragged =
            ProblemSize { op: GemmOp::Fwd, rows: 1, columns: 4, depth: 8, splits: 1, dtype: Dtype::I8, vectors: false };
        let archs = [Arch::Sm89, Arch::Sm90a, Arch::Sm121, Arch::Sim];
        assert!(
            archs.iter().all(|arch| !variants(GemmOp::Fwd, Dtype::I8, *arch).iter().any(|it| admits(&ragged, *it)))
        );
    }

    #[test]
    fn few_tiles_of_short_sums_are_smaller_instead() {
        let tile = |(rows, columns, depth)| {
            let problem =
                ProblemSize { op: GemmOp::Wgrad, rows, columns, depth, splits: 1, dtype: Dtype::Bf16, vectors: true };
            select(&problem, Arch::Sm90a).tile().0
        };
        // Student's qkv and o; gate and up have tiles enough.
        assert_eq!([(1152, 896, 512), (896, 896, 512), (9728, 896, 512)].map(tile), [64, 64, 128]);
    }

    #[test]
    fn few_tiles_of_long_sums_are_divided_for_the_architecture_that_runs() {
        let parts = |op, (rows, columns, depth), arch| {
            splits(&ProblemSize { op, rows, columns, depth, splits: 1, dtype: Dtype::Bf16, vectors: true }, arch)
        };
        // Weights: student's o, gate and up; the head's from 2048 tokens.
        let weights = [(896, 896, 8192), (9728, 896, 8192), (151_936, 896, 2048)];
        let of_weights = |arch| weights.map(|shape| parts(GemmOp::Wgrad, shape, arch));
        assert_eq!(of_weights(Arch::Sm90Portable), [Some(5), Some(4), None]);
        // Inputs of the head, and of gate and up: too many sums to keep.
        let inputs = [(2048, 896, 151_936), (8192, 896, 9728)];
        assert_eq!(inputs.map(|shape| parts(GemmOp::Dgrad, shape, Arch::Sm90Portable)), [Some(7), None]);
        // Fewer multiprocessors are full sooner.
        assert_ne!(of_weights(Arch::Sm121), of_weights(Arch::Sm90Portable));
        for arch in [Arch::Sm90a, Arch::Sim] {
            assert_eq!((of_weights(arch), splits_k(Dtype::Bf16, arch)), ([None; 3], false));
        }
    }
}
