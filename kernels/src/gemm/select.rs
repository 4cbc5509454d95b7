//! Selects a GEMM's variant by the estimated time of each tile of an architecture.

use super::model;
pub(crate) use super::op::GemmOp;
use super::rates::rates;
use super::variants::Tiling;
use crate::card::Card;
use crate::{Arch, Dtype};

/// The problem of one launch: a result of rows x columns, and its operands.
#[derive(Clone, Copy)]
pub(crate) struct ProblemSize {
    pub op: GemmOp,
    pub rows: u32,
    pub columns: u32,
    /// Length of the sums: K of the GEMM, whichever dimension of the layer that is.
    pub depth: u32,
    /// Split-K: parts of the depth, one CTA each.
    pub splits: u32,
    /// Experts whose rows are multiplied; 0 for a dense GEMM.
    pub experts: u32,
    /// Dtype of the inputs.
    pub dtype: Dtype,
    /// True if all rows of all operands are whole 16-byte vectors on 16-byte addresses.
    pub vectors: bool,
}

pub(crate) fn variants(op: GemmOp, dtype: Dtype, arch: Arch) -> Vec<Tiling> {
    rates(op, dtype, arch).iter().map(|(tiling, _)| *tiling).collect()
}

/// Admits bf16 on tensor cores if it can be copied in vectors.
pub(crate) fn admits(problem: &ProblemSize, variant: Tiling) -> bool {
    let tensor_cores = !matches!(variant, Tiling::CudaCores(_));
    match problem.dtype {
        Dtype::Bf16 | Dtype::I8 => tensor_cores == problem.vectors,
        _ => true,
    }
}

/// Most rows of a forward GEMM in small tiles: what a phase of decoding has at most.
const FEW_ROWS: u32 = 512;

/// Most tiles that clusters of four CTAs divide: on an H200 no more than these run at once, one CTA a multiprocessor.
const MOST_IN_FOURS: u32 = 28;

/// True if a tile may be selected for a problem that it admits. Forward GEMMs take small tiles where there are few
/// rows, and CTAs wait for weights: those of many rows read too much for what they multiply. Clusters of four divide
/// tiles that all run at once.
fn suits(problem: &ProblemSize, variant: Tiling) -> bool {
    if let Tiling::Wgmma(wgmma) = variant
        && wgmma.cluster > 2
    {
        return problem.rows.div_ceil(wgmma.tile_m) * problem.columns.div_ceil(wgmma.tile_n) <= MOST_IN_FOURS;
    }
    let is_forward = problem.op.is_forward();
    let is_for_few_rows = match variant {
        Tiling::FewRows(_) => true,
        Tiling::Wgmma(wgmma) => is_forward && wgmma.tile_m * wgmma.tile_n < 128 * 128,
        Tiling::Mma(_) | Tiling::CudaCores(_) => false,
    };
    !is_for_few_rows || problem.rows <= FEW_ROWS || problem.op.is_of_experts()
}

/// True if two tiles sum in the same order: the instruction's steps of the depth one after another, which neither the
/// tile's size nor its stages change. In gradients, a `wgmma` cluster may divide the depth, and for which tiles depends
/// on the problem, or warpgroups divide each k-tile.
pub(crate) fn sums_as(op: GemmOp, selected: Tiling, other: Tiling) -> bool {
    match (selected, other) {
        (Tiling::Mma(_) | Tiling::FewRows(_), Tiling::Mma(_) | Tiling::FewRows(_)) => true,
        (Tiling::Wgmma(_), Tiling::Wgmma(_)) if op.is_forward() => true,
        (selected, other) => selected == other,
    }
}

/// Depth whose time equals a CTA's prologue and epilogue. If two CTAs share an SM, the other's mainloop hides half of
/// it. This and the next two are fitted to measurements of `precast bench tune FILE` on an H200 (`tuned.txt`).
const BLOCK_DEPTH: u64 = 256;
/// Depth whose time equals a cluster's reduction of its accumulators.
const REDUCTION_DEPTH: u64 = 500;
/// Depth whose time equals one split's wait for another to add.
const SEMAPHORE_DEPTH: u64 = 160;
/// Depth whose time equals prologue and epilogue of a CTA with one tile, whose copies no other tile's epilogue hides.
/// Fitted to the same measurements of 512 and 8192 tokens.
const LONE_DEPTH: u64 = 750;
/// Tensor cores round accumulators towards zero, 1.1e-9 of the norm per step of the depth: at this depth 3.4e-6, within
/// the 4e-6 allowed for a result in f32.
const EXACT_DEPTH: u32 = 3072;
/// Most splits of a tile.
const MOST_SPLITS: u32 = 8;
/// Workspace that stays in L2 beside the operands: a sixth of an H200's 50 MiB.
const WORKSPACE_BYTES: u64 = 8 << 20;

/// Estimates a GEMM's time, if every multiprocessor computes as many tiles as the busiest; the clusters of gradients
/// may divide tiles beyond whole waves.
fn time(problem: &ProblemSize, variant: Tiling, rate: u32, multiprocessors: u64) -> u64 {
    let (m, n) = variant.tile();
    let splits = if matches!(variant, Tiling::Mma(_)) { u64::from(problem.splits) } else { 1 };
    // CTAs of a cluster that only have tiles below each other, and those that may divide the depth.
    let (sharers, cluster) = match variant {
        Tiling::Wgmma(wgmma) if problem.op.never_splits(wgmma) => (wgmma.cluster, 1),
        Tiling::Wgmma(wgmma) => (1, u64::from(wgmma.cluster)),
        Tiling::Mma(_) | Tiling::FewRows(_) | Tiling::CudaCores(_) => (1, 1),
    };
    let rows = if problem.experts == 0 { problem.rows.div_ceil(m) } else { expert_tiles(problem, m) };
    let tiles = u64::from(rows.next_multiple_of(sharers)) * u64::from(problem.columns.div_ceil(n));
    let (waves, rest) = (tiles * splits / multiprocessors, tiles * splits % multiprocessors);
    let rounds = rest.div_ceil(multiprocessors / cluster).min(cluster); // each takes a part of a wave
    let pairs = matches!(variant, Tiling::Mma(mma) if mma.threads == 128);
    let overhead = match variant {
        Tiling::Wgmma(wgmma) if problem.op.splits_k_tiles(wgmma) => LONE_DEPTH,
        _ if pairs => BLOCK_DEPTH / 2,
        _ => BLOCK_DEPTH,
    };
    let depth = u64::from(problem.depth).div_ceil(splits) + overhead;
    let reduction = if rounds > 0 && rounds < cluster { REDUCTION_DEPTH } else { 0 };
    let waits = (splits - 1) * SEMAPHORE_DEPTH + reduction;
    // One of a pair alone takes three quarters of the time of both.
    let halves = 2 * (waves * cluster + rounds) + u64::from(pairs && (waves + rounds) % 2 == 1);
    (halves * depth / (2 * cluster) + waits) * u64::from(m * n) * 100 / u64::from(rate)
}

/// Estimates the tiles of so many rows of experts that get equally many rows: whole ones, or one for each that has any.
fn expert_tiles(problem: &ProblemSize, tile_rows: u32) -> u32 {
    let experts = problem.experts.min(problem.rows).max(1);
    experts * problem.rows.div_ceil(experts).div_ceil(tile_rows)
}

/// Returns the variant that takes the least time, and that time; the first of equals. Rates are the architecture's.
fn fastest(problem: &ProblemSize, arch: Arch) -> (Tiling, u64) {
    least(problem, arch, arch.multiprocessors(), |_, rate| rate)
}

/// Returns the variant that takes the least time on so many multiprocessors, and that time. `rate` makes a tile's rate
/// of the one in the architecture's table.
fn least(problem: &ProblemSize, arch: Arch, multiprocessors: u32, rate: impl Fn(Tiling, u32) -> u32) -> (Tiling, u64) {
    let admitted = rates(problem.op, problem.dtype, arch).iter().filter(|(variant, _)| admits(problem, *variant));
    let timed = admitted
        .filter(|(variant, _)| suits(problem, *variant))
        .map(|(variant, table)| (*variant, time(problem, *variant, rate(*variant, *table), multiprocessors.into())));
    timed.min_by_key(|(_, time)| *time).expect("every GEMM has a variant that admits it")
}

/// Returns the variant that takes the least time on the GPU that an architecture's launches are sized for.
pub(crate) fn select(problem: &ProblemSize, arch: Arch) -> Tiling {
    arch.card().map_or_else(|| fastest(problem, arch).0, |card| select_for(problem, arch, card))
}

/// Returns the variant that takes the least time on a card, by its own figures: rates of tiles for `mma.sync` are
/// modeled.
pub(crate) fn select_for(problem: &ProblemSize, arch: Arch, card: Card) -> Tiling {
    least(problem, arch, card.multiprocessors, |tiling, table| model::rate(tiling, card).unwrap_or(table)).0
}

/// True if GEMMs of a dtype are built on an architecture so that CTAs can split K. `wgmma` has its own means, and the
/// simulated GPU sums at once.
pub fn splits_k(dtype: Dtype, arch: Arch) -> bool {
    let mut variants = rates(GemmOp::Wgrad, dtype, arch).iter();
    arch != Arch::Sim && variants.any(|(variant, _)| matches!(variant, Tiling::Mma(_)))
}

/// Returns the number of parts of the depth, one CTA each, if splitting is faster, and of `semaphores` that it takes.
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

/// Returns the elements of `semaphores`: one per tile of the smallest size.
pub(crate) fn semaphores(problem: &ProblemSize) -> u64 {
    u64::from(problem.rows.div_ceil(128)) * u64::from(problem.columns.div_ceil(64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::Numbers;
    use crate::{KERNELS, Key};

    /// Returns a problem in bf16, of whole vectors, that is not split.
    fn whole(op: GemmOp, (rows, columns, depth): (u32, u32, u32)) -> ProblemSize {
        ProblemSize { op, rows, columns, depth, splits: 1, experts: 0, dtype: Dtype::Bf16, vectors: true }
    }

    #[test]
    fn int8_takes_nothing_but_whole_vectors() {
        let ragged = ProblemSize {
            op: GemmOp::Fwd,
            rows: 1,
            columns: 4,
            depth: 8,
            splits: 1,
            experts: 0,
            dtype: Dtype::I8,
            vectors: false,
        };
        let archs = [Arch::Sm89, Arch::Sm90a, Arch::Sm121, Arch::Sim];
        assert!(
            archs.iter().all(|arch| !variants(GemmOp::Fwd, Dtype::I8, *arch).iter().any(|it| admits(&ragged, *it)))
        );
    }

    #[test]
    fn tiles_of_few_rows_are_selected_for_few_rows_alone() {
        let tile = |op, dtype, (rows, columns, depth), arch| {
            select(&ProblemSize { op, rows, columns, depth, splits: 1, experts: 0, dtype, vectors: true }, arch).tile()
        };
        let archs = Arch::GPUS.into_iter().chain([Arch::Sm90Portable]);
        let forward = [GemmOp::Fwd, GemmOp::Swiglu].into_iter().flat_map(|op| [(op, Dtype::Bf16), (op, Dtype::I8)]);
        for ((op, dtype), arch) in forward.flat_map(|of| archs.clone().map(move |arch| (of, arch))) {
            for shape in [(1152, 896), (896, 4864), (9728, 896), (151_936, 896), (3584, 18_944)] {
                for rows in [513, 1024, 8192] {
                    let (m, n) = tile(op, dtype, (rows, shape.0, shape.1), arch);
                    let is_large = m >= 128 && (n >= 128 || arch != Arch::Sm90a);
                    assert!(is_large, "{op:?} {dtype:?} {rows} {shape:?} {arch}: {m} x {n}");
                }
            }
            assert_eq!(tile(op, dtype, (64, 896, 4864), arch).0, 64, "{op:?} {dtype:?} {arch}");
        }
        // A decoding step: qkv, o, down.
        for dtype in [Dtype::Bf16, Dtype::I8] {
            let columns = |rows| {
                [(1152, 896), (896, 896), (896, 4864)].map(|(n, k)| tile(GemmOp::Fwd, dtype, (rows, n, k), Arch::Sm90a))
            };
            assert_eq!([64, 256].map(columns), [[(64, 64); 3]; 2], "{dtype:?}");
            assert_eq!(columns(512), [(128, 64), (64, 64), (64, 64)], "{dtype:?}");
        }
    }

    #[test]
    fn few_tiles_of_short_sums_are_smaller_instead() {
        let tile = |shape| select(&whole(GemmOp::Wgrad, shape), Arch::Sm90a).tile().0;
        // Student's qkv and o; gate and up, and down, have tiles enough.
        let shapes = [(1152, 896, 512), (896, 896, 512), (9728, 896, 512), (896, 4864, 512)];
        assert_eq!(shapes.map(tile), [64, 64, 128, 128]);
    }

    #[test]
    fn gradients_of_few_tokens_are_divided_by_as_many_ctas_as_run_at_once() {
        let cluster = |shape| {
            let Tiling::Wgmma(wgmma) = select(&whole(GemmOp::Dgrad, shape), Arch::Sm90a) else {
                panic!("not by wgmma")
            };
            wgmma.cluster
        };
        // Student's head, gate and up, o, of 512 tokens; then more tokens, or more columns.
        assert_eq!([(512, 896, 151_936), (512, 896, 9728), (512, 896, 896)].map(cluster), [4; 3]);
        assert_eq!([(1024, 896, 9728), (8192, 896, 9728), (512, 4864, 896)].map(cluster), [2; 3]);
    }

    #[test]
    fn few_tiles_of_long_sums_are_divided_for_the_architecture() {
        let parts = |op, shape, arch| splits(&whole(op, shape), arch);
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

    #[test]
    fn the_model_of_a_card_selects_almost_as_measurements_do() {
        let card = Card { multiprocessors: 132, flops_per_clock: 4096 };
        let launches = KERNELS.tuned().launches("NVIDIA H200", Arch::Sm90Portable);
        let mut lost: Vec<(f64, f64, String)> = launches
            .map(|(key, problem, times)| {
                let size = size(&KERNELS.parse(key).unwrap(), problem);
                let selected = select_for(&size, Arch::Sm90Portable, card).erase().to_string();
                let best = times.values().copied().fold(f64::INFINITY, f64::min);
                (times[&selected] - best, best, format!("{key} {problem}: {:.3}", times[&selected] / best))
            })
            .collect();
        let [lost_us, best_us] = lost.iter().fold([0.0, 0.0], |[a, b], (lost, best, _)| [a + lost, b + best]);
        assert!(lost.len() > 70 && lost_us / best_us < 0.05, "{lost_us} of {best_us}");
        lost.sort_by(|a, b| b.0.total_cmp(&a.0));
        let worst: Vec<&str> = lost[..3].iter().map(|(.., launch)| launch.as_str()).collect();
        assert_eq!(
            worst,
            [
                "gemm.wgrad{x=bf16} 2048x151936x2048: 1.059",
                "gemm.swiglu{bias=false,w=bf16,x=bf16} 8192x14336x4096: 1.039",
                "gemm.swiglu{bias=false,w=bf16,x=bf16} 8192x12288x4096: 1.046",
            ]
        );
    }

    /// Returns the size of a launch in the table of times.
    fn size(key: &Key, problem: &str) -> ProblemSize {
        let [m, n, k] = problem.split('x').map(|it| it.parse().unwrap()).collect::<Vec<u32>>()[..] else { panic!() };
        let dtype = if key.text().contains("x=i8") { Dtype::I8 } else { Dtype::Bf16 };
        let (op, (rows, columns, depth)) = match key.op() {
            "gemm.fwd" => (GemmOp::Fwd, (m, n, k)),
            "gemm.swiglu" => (GemmOp::Swiglu, (m, 2 * n, k)),
            "gemm.dgrad" => (GemmOp::Dgrad, (m, k, n)),
            _ => (GemmOp::Wgrad, (n, k, m)),
        };
        let depth = if dtype == Dtype::I8 { depth / 2 } else { depth };
        let whole = ProblemSize { op, rows, columns, depth, splits: 1, experts: 0, dtype, vectors: true };
        let splits =
            if matches!(op, GemmOp::Dgrad | GemmOp::Wgrad) { splits(&whole, Arch::Sm90Portable) } else { None };
        ProblemSize { splits: splits.unwrap_or(1), ..whole }
    }
}
