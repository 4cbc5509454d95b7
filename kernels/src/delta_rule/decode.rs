//! Rows in slots, with the bits of the forward pass.
//!
//! A slot keeps the state at the start of its chunk, also rounded, as rows read it, and, of the chunk's tokens so far,
//! keys, their factors, decays, rows of `(I + A)^-1` and `beta (v - exp(G) k S)`. The state moves where a chunk is
//! full, as the forward pass moves it: from token to token it would have other bits. A run of rows takes its chunks in
//! order; one that begins within a chunk ends there at the latest, as its CTAs share keys.

use super::decode_host;
use super::variants::GATES_BYTES;
use crate::abi::{DELTA_BLOCK, DELTA_CHUNK, DELTA_HEAD, DeltaRuleDecode, delta_rule_decode_params};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Fixed, Geometry, Operand, Reference, Source, Threads, Tolerance, variant};

variant! {
    /// By `mma.sync`.
    pub struct DecodeMma {
        /// CTAs per multiprocessor, which share its registers.
        blocks: u32,
        /// Selects this kind in the source.
        mma: Fixed<1>,
        threads: u32,
    }
}

variant! {
    /// Variants for rows in slots.
    pub enum Decode {
        /// On CUDA cores.
        Threads,
        /// On tensor cores of every architecture.
        DecodeMma,
    }
}

/// Sources of a folder, with the pool's headers.
macro_rules! decode_source {
    ($folder:literal, $header:literal) => {
        Source {
            path: concat!("delta_rule/", $folder, "/decode.cu"),
            text: include_str!(concat!($folder, "/decode.cu")),
            headers: &[
                ("delta_rule.h", include_str!("delta_rule.h")),
                ("delta_rule_decode.h", include_str!("delta_rule_decode.h")),
                ("delta_rule/chunk.cuh", include_str!("chunk.cuh")),
                ("delta_rule/decode.cuh", include_str!("decode.cuh")),
                ("delta_rule/gates.cuh", include_str!("gates.cuh")),
                (concat!("delta_rule/", $header), include_str!($header)),
                ("kv.h", include_str!("../kv/kv.h")),
                ("kv/run.cuh", include_str!("../kv/run.cuh")),
            ],
            common: &crate::COMMON,
        }
    };
}

impl Build for DeltaRuleDecode {
    type Variant = Decode;

    fn source(&self, variant: Decode) -> Source {
        match variant {
            Decode::DecodeMma(_) => decode_source!("mma", "mma/tile.cuh"),
            Decode::Threads(_) => decode_source!("simt", "simt/row.cuh"),
        }
    }

    fn variants(&self, arch: Arch) -> Vec<Decode> {
        // Of three CTAs a multiprocessor, the compiler spills registers for other GPUs.
        let blocks = if matches!(arch, Arch::Sm90a | Arch::Sm90Portable) { 3 } else { 2 };
        vec![match self.x {
            Dtype::Bf16 => Decode::DecodeMma(DecodeMma { blocks, mma: Fixed, threads: 4 * DELTA_CHUNK }),
            _ => Decode::Threads(Threads { threads: DELTA_HEAD }),
        }]
    }

    /// Launches a CTA for each row and value head; the CTA of a run's first row computes the run.
    fn geometry(&self, variant: Decode, p: &delta_rule_decode_params) -> Geometry {
        let (threads, bytes) = match variant {
            // Keys, values and v_new; the inverse in f32; queries and scores of a block.
            Decode::DecodeMma(DecodeMma { threads, .. }) => {
                let (chunk, block) = (3 * DELTA_HEAD + 2 * DELTA_CHUNK, DELTA_HEAD + DELTA_CHUNK);
                (threads, 2 * (DELTA_CHUNK * chunk + DELTA_BLOCK * block))
            }
            // v_new; a row of the system and of the scores.
            Decode::Threads(Threads { threads }) => (threads, 4 * DELTA_CHUNK * (DELTA_HEAD + 2)),
        };
        Geometry { grid: [p.rows * p.value_heads, 1, 1], block: [threads, 1, 1], shared_bytes: bytes + GATES_BYTES }
    }
}

impl DeltaRuleDecode {
    fn launch((rows, slots, seq_len, key_heads, value_heads): (u32, u32, u32, u32, u32)) -> delta_rule_decode_params {
        let (gate_columns, b_column) = (2 * value_heads + 8, 8);
        delta_rule_decode_params {
            rows,
            slots,
            seq_len,
            key_heads,
            value_heads,
            gate_columns,
            b_column,
            ..Default::default()
        }
    }
}

impl Reference for DeltaRuleDecode {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &delta_rule_decode_params, views: &mut Views<'_>) {
        decode_host::decode(*self, p, views);
    }

    fn samples(&self) -> Vec<delta_rule_decode_params> {
        [(1, 1, 1, 1, 1), (3, 4, 64, 1, 2), (12, 9, 150, 2, 2), (140, 8, 200, 1, 4), (64, 3, 64, 2, 2)]
            .map(Self::launch)
            .into()
    }

    /// States are sums of products that were rounded to x, in f32.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        match (operand.name, self.x) {
            ("states", Dtype::Bf16) => Tolerance { norm: 1e-5, element: 2e-4, absolute: 0.0 },
            _ => Tolerance::of(operand.format),
        }
    }

    fn typical(&self, batch: Batch) -> delta_rule_decode_params {
        let rows = batch.tokens().div_ceil(64);
        Self::launch((rows, rows, batch.seq_len, 16, 16))
    }
}
