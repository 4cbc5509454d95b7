//! Variants of the forward kernels, and the geometry of their launches.

use super::{HEAD, chunks};
use crate::abi::{DELTA_CHUNK, DeltaRuleFwd, DeltaRuleSolve, delta_rule_fwd_params, delta_rule_solve_params};
use crate::{Arch, Build, Dtype, Fixed, Geometry, Source, Threads, source, variant};

variant! {
    /// `solve` by `mma.sync`.
    pub struct SolveMma {
        /// CTAs per multiprocessor, which share its registers.
        blocks: u32,
        /// Selects this kind in the source.
        mma: Fixed<1>,
        threads: u32,
    }
}

variant! {
    /// Variants of `solve`.
    pub enum Solve {
        /// On CUDA cores.
        Threads,
        /// On tensor cores of every architecture.
        SolveMma,
    }
}

variant! {
    /// `fwd` on CUDA cores.
    pub struct FwdColumns {
        /// Columns of the state per CTA.
        columns: u32,
        threads: u32,
    }
}

variant! {
    /// `fwd` by `mma.sync`.
    pub struct FwdMma {
        /// Columns of the state per CTA.
        columns: u32,
        /// Selects this kind in the source.
        mma: Fixed<1>,
        threads: u32,
    }
}

variant! {
    /// Variants of `fwd`.
    pub enum Fwd {
        /// On CUDA cores.
        FwdColumns,
        /// On tensor cores of every architecture.
        FwdMma,
    }
}

/// Threads of a CTA: two for each token of a chunk.
const THREADS: u32 = 2 * DELTA_CHUNK;
/// Bytes of what is known of each token.
pub(super) const GATES_BYTES: u32 = 5 * DELTA_CHUNK * 4;
/// Floats from row to row of a triangular system in shared memory, as solve.cu has it.
const PITCH: u32 = DELTA_CHUNK + 4;

impl Build for DeltaRuleSolve {
    type Variant = Solve;

    fn source(&self, variant: Solve) -> Source {
        match variant {
            Solve::SolveMma(_) => source!("delta_rule", "mma/solve.cu", "chunk.cuh", "gates.cuh", "mma/tile.cuh"),
            Solve::Threads(_) => source!("delta_rule", "simt/solve.cu", "chunk.cuh", "gates.cuh", "simt/row.cuh"),
        }
    }

    fn variants(&self, _arch: Arch) -> Vec<Solve> {
        vec![match self.x {
            Dtype::Bf16 => Solve::SolveMma(SolveMma { blocks: 5, mma: Fixed, threads: THREADS }),
            _ => Solve::Threads(Threads { threads: THREADS }),
        }]
    }

    fn geometry(&self, variant: Solve, p: &delta_rule_solve_params) -> Geometry {
        let (threads, bytes) = match variant {
            // Queries, of which the inverse takes the place, and keys, of which the system does.
            Solve::SolveMma(SolveMma { threads, .. }) => (threads, DELTA_CHUNK * (2 * HEAD + 4 * PITCH) + GATES_BYTES),
            Solve::Threads(Threads { threads }) => (threads, 2 * DELTA_CHUNK * DELTA_CHUNK * 4 + GATES_BYTES),
        };
        Geometry {
            grid: [chunks(p.tokens, p.count) * p.value_heads, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: bytes,
        }
    }
}

impl Build for DeltaRuleFwd {
    type Variant = Fwd;

    fn source(&self, variant: Fwd) -> Source {
        match variant {
            Fwd::FwdMma(_) => source!("delta_rule", "mma/fwd.cu", "chunk.cuh", "gates.cuh", "mma/tile.cuh"),
            Fwd::FwdColumns(_) => source!("delta_rule", "simt/fwd.cu", "chunk.cuh", "gates.cuh"),
        }
    }

    fn variants(&self, _arch: Arch) -> Vec<Fwd> {
        vec![match self.x {
            Dtype::Bf16 => Fwd::FwdMma(FwdMma { columns: 64, mma: Fixed, threads: THREADS }),
            _ => Fwd::FwdColumns(FwdColumns { columns: 64, threads: THREADS }),
        }]
    }

    fn geometry(&self, variant: Fwd, p: &delta_rule_fwd_params) -> Geometry {
        let (columns, threads, shared_bytes) = match variant {
            // Two stages of keys, queries, inverse, scores, values, what is written to the state, and the state.
            Fwd::FwdMma(FwdMma { columns, threads, .. }) => {
                let of_chunk = 3 * HEAD + 2 * DELTA_CHUNK + 2 * columns;
                (columns, threads, 2 * (DELTA_CHUNK * of_chunk + HEAD * columns))
            }
            // The state, the change of it, and what is written to it.
            Fwd::FwdColumns(FwdColumns { columns, threads }) => {
                (columns, threads, 4 * (HEAD + 2 * DELTA_CHUNK) * columns)
            }
        };
        let grid = [p.count * p.value_heads * (HEAD / columns), 1, 1];
        Geometry { grid, block: [threads, 1, 1], shared_bytes }
    }
}
