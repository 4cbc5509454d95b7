//! Variants of the backward kernels: bf16 on tensor cores of every architecture, f32 on CUDA cores.

use super::{DELTA_CHUNK, HEAD};
use crate::abi::{DeltaRuleBwd, DeltaRuleStateBwd, delta_rule_bwd_params, delta_rule_state_bwd_params};
use crate::{Arch, Build, Dtype, Fixed, Geometry, Source, Threads, source, variant};

variant! {
    /// By `mma.sync`.
    pub struct BwdMma {
        /// CTAs per multiprocessor, which share its registers.
        blocks: u32,
        /// Selects this kind in the source.
        mma: Fixed<1>,
        threads: u32,
    }
}

variant! {
    /// Variants of both kernels.
    pub enum Bwd {
        /// On CUDA cores.
        Threads,
        /// On tensor cores of every architecture.
        BwdMma,
    }
}

/// Bytes of a tile of a chunk's heads in bf16, and of one as wide as the chunk.
const WIDE: u32 = 2 * DELTA_CHUNK * HEAD;
const NARROW: u32 = 2 * DELTA_CHUNK * DELTA_CHUNK;

/// Columns of a state that a CTA owns.
const COLUMNS: u32 = 64;

fn variants(x: Dtype, blocks: u32, threads: u32) -> Vec<Bwd> {
    match x {
        Dtype::Bf16 => vec![Bwd::BwdMma(BwdMma { blocks, mma: Fixed, threads })],
        _ => vec![Bwd::Threads(Threads { threads: HEAD })],
    }
}

impl Build for DeltaRuleStateBwd {
    type Variant = Bwd;

    fn variants(&self, _arch: Arch) -> Vec<Bwd> {
        variants(self.x, 1, 128)
    }

    fn source(&self, variant: Bwd) -> Source {
        match variant {
            Bwd::BwdMma(_) => source!("delta_rule", "mma/state_bwd.cu", "chunk.cuh", "mma/tile.cuh"),
            Bwd::Threads(_) => source!("delta_rule", "simt/state_bwd.cu", "chunk.cuh"),
        }
    }

    fn geometry(&self, variant: Bwd, p: &delta_rule_state_bwd_params) -> Geometry {
        let heads = p.count * p.value_heads;
        let (blocks, threads, shared_bytes) = match variant {
            // Two stages of keys and gradients; queries, scores, the inverse and the state; three factors a row.
            Bwd::BwdMma(BwdMma { threads, .. }) => {
                (heads * (HEAD / COLUMNS), threads, 3 * WIDE + 4 * NARROW + 2 * HEAD * COLUMNS + 3 * 4 * DELTA_CHUNK)
            }
            // The state, and the gradient of what is written to it.
            Bwd::Threads(Threads { threads }) => (heads, threads, 4 * HEAD * (HEAD + DELTA_CHUNK)),
        };
        Geometry { shared_bytes, ..Geometry::linear(blocks, threads) }
    }
}

impl Build for DeltaRuleBwd {
    type Variant = Bwd;

    fn variants(&self, arch: Arch) -> Vec<Bwd> {
        // Shared memory of others has space for one.
        variants(self.x, if arch == Arch::Sm90a { 2 } else { 1 }, 256)
    }

    fn source(&self, variant: Bwd) -> Source {
        match variant {
            Bwd::BwdMma(_) => source!("delta_rule", "mma/bwd.cu", "chunk.cuh", "gates_bwd.cuh", "mma/tile.cuh"),
            Bwd::Threads(_) => source!("delta_rule", "simt/bwd.cu", "chunk.cuh", "gates_bwd.cuh"),
        }
    }

    fn geometry(&self, variant: Bwd, p: &delta_rule_bwd_params) -> Geometry {
        let (threads, shared_bytes) = match variant {
            // Queries, keys, gradients, written values and their gradients, and half a state; seven values a row.
            Bwd::BwdMma(BwdMma { threads, .. }) => (threads, 6 * WIDE + 7 * 4 * DELTA_CHUNK),
            // Gradients of queries and keys, and two triangles; six values a row and a sum of each warp.
            Bwd::Threads(Threads { threads }) => {
                (threads, 4 * DELTA_CHUNK * (2 * HEAD + 2 * DELTA_CHUNK + 6) + 4 * threads / 32)
            }
        };
        Geometry { shared_bytes, ..Geometry::linear(p.chunks * p.key_heads, threads) }
    }
}
