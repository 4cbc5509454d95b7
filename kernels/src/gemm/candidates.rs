//! Candidate tiles of a GEMM on an architecture: every tile of each instruction that meets all constraints.

use super::op::GemmOp;
use super::variants::{CudaCores, FewRows, Mma, Tiling, Wgmma};
use crate::abi::EXPERT_TILE;
use crate::{Arch, Fixed};

/// Registers of a multiprocessor, and the most per thread (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
const REGISTERS: u32 = 1 << 16;
const REGISTERS_PER_THREAD: u32 = 255;
/// Warps for which a multiprocessor issues at once.
const SCHEDULERS: u32 = 4;
/// Shared memory of each CTA that the system reserves, bytes.
const SYSTEM_BYTES: u32 = 1024;
/// Fewest stages that hide a copy: one is read, one is waited for, one is in flight.
const FEWEST_STAGES: u32 = 3;
/// Columns that the epilogues of tensor cores store at a time.
const CHUNK: u32 = 32;

/// A constraint on tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// The architecture has the instruction.
    Instruction,
    /// At least as many warps as schedulers, and few enough that each thread gets all registers it can address.
    Threads,
    /// The accumulators of a thread take at most half of its registers.
    Registers,
    /// A CTA may use as much; if it has no more warps than schedulers, two fit a multiprocessor, unless it is for few
    /// rows: there are fewer CTAs than multiprocessors.
    SharedMemory,
    /// The epilogue stores whole chunks of a warp's columns.
    Columns,
    /// A tile of experts is a part of one of the list, and CTAs share nothing.
    Experts,
}

impl Constraint {
    const ALL: [Self; 6] =
        [Self::Instruction, Self::Threads, Self::Registers, Self::SharedMemory, Self::Columns, Self::Experts];

    /// True if a tile meets the constraint.
    fn admits(self, op: GemmOp, tiling: Tiling, arch: Arch) -> bool {
        match self {
            Self::Instruction => !matches!(tiling, Tiling::Wgmma(_)) || arch == Arch::Sm90a,
            // The producers of a pipeline give their registers to the consumers.
            Self::Threads => {
                let threads = multiplying(tiling);
                threads >= SCHEDULERS * 32 && threads * (REGISTERS_PER_THREAD + 1) <= REGISTERS
            }
            Self::Registers => sums(tiling) <= REGISTERS_PER_THREAD.div_ceil(2),
            Self::SharedMemory => {
                let bytes = shared_bytes(tiling);
                let pairs = multiplying(tiling) == SCHEDULERS * 32 && !matches!(tiling, Tiling::FewRows(_));
                let fits = !pairs || 2 * (bytes + SYSTEM_BYTES) <= arch.multiprocessor().shared_bytes;
                bytes <= arch.shared_bytes_per_block() && fits
            }
            Self::Experts => {
                let is_alone = !matches!(tiling, Tiling::Wgmma(wgmma) if wgmma.cluster > 1);
                !op.is_of_experts() || is_alone && EXPERT_TILE.is_multiple_of(tiling.tile().0)
            }
            Self::Columns => match (tiling, op) {
                (Tiling::CudaCores(_), _) => true,
                // A gated result has half of a warp's columns.
                (Tiling::Mma(Mma { warp_n, .. }) | Tiling::FewRows(FewRows { warp_n, .. }), op) if op.is_gated() => {
                    warp_n / 2 >= CHUNK
                }
                (Tiling::Mma(Mma { warp_n, .. }) | Tiling::FewRows(FewRows { warp_n, .. }), _) => warp_n >= CHUNK,
                (Tiling::Wgmma(wgmma), op) if op.is_gated() => (wgmma.tile_n / 2).is_multiple_of(CHUNK),
                (Tiling::Wgmma(wgmma), _) => wgmma.tile_n.is_multiple_of(CHUNK),
            },
        }
    }
}

/// Returns the number of threads that multiply.
fn multiplying(tiling: Tiling) -> u32 {
    match tiling {
        Tiling::CudaCores(CudaCores { threads, .. })
        | Tiling::Mma(Mma { threads, .. })
        | Tiling::FewRows(FewRows { threads, .. }) => threads,
        // One warpgroup copies.
        Tiling::Wgmma(wgmma) => wgmma.threads - 128,
    }
}

/// Returns the accumulators of a thread.
fn sums(tiling: Tiling) -> u32 {
    match tiling {
        Tiling::CudaCores(CudaCores { threads, tile }) => tile * tile / threads,
        Tiling::Mma(mma) => 64 * mma.warp_n / 32,
        Tiling::FewRows(few) => few.warp_m * few.warp_n / 32,
        Tiling::Wgmma(wgmma) => 64 * wgmma.tile_n / 128,
    }
}

/// Returns the shared memory of the fewest stages, or of a fixed number, bytes; elements have 2.
fn shared_bytes(tiling: Tiling) -> u32 {
    match tiling {
        // Its source declares static shared memory, which the compiler checks.
        Tiling::CudaCores(_) => 0,
        Tiling::Mma(Mma { stages, tile_k, tile_m, tile_n, .. })
        | Tiling::FewRows(FewRows { stages, tile_k, tile_m, tile_n, .. }) => (tile_m + tile_n) * tile_k * 2 * stages,
        Tiling::Wgmma(wgmma) => (wgmma.tile_m + wgmma.tile_n) * wgmma.tile_k * 2 * FEWEST_STAGES,
    }
}

/// 256 threads in a 16 x 16 grid.
fn cuda_cores() -> impl Iterator<Item = Tiling> {
    [128, 64].into_iter().map(|tile| Tiling::CudaCores(CudaCores { threads: 256, tile }))
}

/// Warps of 64 rows.
fn mma() -> impl Iterator<Item = Tiling> {
    let tiles = [128, 256].into_iter().flat_map(|m| [64, 128, 256].map(|n| (m, n)));
    let slices = tiles.flat_map(|tile| [32, 64].map(|tile_k| (tile, tile_k)));
    let warps = slices.flat_map(|slice| [32, 64, 128].map(|warp_n| (slice, warp_n)));
    warps.filter(|(((_, tile_n), _), warp_n)| warp_n <= tile_n).flat_map(|(((tile_m, tile_n), tile_k), warp_n)| {
        [FEWEST_STAGES, FEWEST_STAGES + 1].map(|stages| {
            let threads = tile_m / 64 * (tile_n / warp_n) * 32;
            Tiling::Mma(Mma { mma: Fixed, stages, threads, tile_k, tile_m, tile_n, warp_n })
        })
    })
}

/// Four warps with equal parts of 64 rows and 32 or 64 columns, and all shared memory of a CTA, or half of it where a
/// gated result has more CTAs than there are multiprocessors.
fn few_rows() -> impl Iterator<Item = Tiling> {
    let parts = [(64, 32, 32, 6), (32, 16, 32, 8), (64, 16, 64, 3)].into_iter();
    parts.map(|(tile_n, warp_m, warp_n, stages)| {
        let [tile_m, tile_k] = [64; 2];
        Tiling::FewRows(FewRows { mma: Fixed, stages, threads: 128, tile_k, tile_m, tile_n, warp_m, warp_n })
    })
}

/// Consumer warpgroups with the accumulators of 64 rows each, and a producer; all shared memory of a CTA. The threads
/// of three warpgroups also where one consumes: registers are divided for them.
fn wgmma() -> impl Iterator<Item = Tiling> {
    let tiles = [64, 128].into_iter().flat_map(|m| (64..=256).step_by(32).map(move |n| (m, n)));
    tiles.flat_map(|(tile_m, tile_n)| {
        [1, 2, 4].map(|cluster| {
            let shared_bytes = Arch::Sm90a.shared_bytes_per_block();
            Tiling::Wgmma(Wgmma { cluster, shared_bytes, threads: 384, tile_k: 64, tile_m, tile_n, wgmma: Fixed })
        })
    })
}

/// Returns the constraints that a tile breaks.
fn broken(op: GemmOp, tiling: Tiling, arch: Arch) -> impl Iterator<Item = Constraint> {
    Constraint::ALL.into_iter().filter(move |constraint| !constraint.admits(op, tiling, arch))
}

/// Returns every tile, buildable or not.
pub fn tiles() -> impl Iterator<Item = Tiling> {
    cuda_cores().chain(mma()).chain(few_rows()).chain(wgmma())
}

/// Returns the first constraint that a tile breaks on an architecture; none for a candidate.
pub fn refused(op: GemmOp, tiling: Tiling, arch: Arch) -> Option<Constraint> {
    broken(op, tiling, arch).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_leave_an_architecture_what_it_can_build() {
        let candidates = |op, arch| tiles().filter(|tiling| refused(op, *tiling, arch).is_none()).count();
        let counts = [Arch::Sm89, Arch::Sm90Portable, Arch::Sm90a].map(|arch| candidates(GemmOp::Fwd, arch));
        assert_eq!((tiles().count(), counts), (111, [17, 23, 72]));
        // A narrow warp has half a chunk of a gated result.
        assert!(candidates(GemmOp::Swiglu, Arch::Sm89) < candidates(GemmOp::Fwd, Arch::Sm89));
    }

    #[test]
    fn each_constraint_refuses_a_tile_that_no_other_does() {
        for constraint in Constraint::ALL {
            let op = if constraint == Constraint::Experts { GemmOp::FwdExperts } else { GemmOp::Swiglu };
            let alone = |tiling: &Tiling| broken(op, *tiling, Arch::Sm90Portable).eq([constraint]);
            assert!(tiles().any(|tiling| alone(&tiling)), "{constraint:?}");
        }
    }
}
