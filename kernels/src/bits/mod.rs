//! Counts of elements whose bits are not those expected: what proves that decoding has the bits of the forward pass.
//!
//! A row `found` is compared with the row of `expected` at its slot and position, element by element, as bits. Counts
//! are integers, which no order of sums changes, so a launch gives the same on any device.

mod host;

pub use crate::abi::BitsCompare;
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant};

impl Build for BitsCompare {
    one_variant!(Threads { threads: 512 });

    fn source(&self, _variant: Threads) -> Source {
        Source {
            path: "bits/compare.cu",
            text: include_str!("compare.cu"),
            headers: &[("kv.h", include_str!("../kv/kv.h")), ("bits.h", include_str!("bits.h"))],
            common: &crate::COMMON,
        }
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.rows, variant.threads)
    }
}

impl Reference for BitsCompare {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        match self.x {
            Dtype::Bf16 => host::count::<u16>(p, views),
            _ => host::count::<u32>(p, views),
        }
    }

    fn samples(&self) -> Vec<Self::Params> {
        // Rows of no whole vectors, and of more than a CTA has threads.
        [(1, 1, 1, 1), (6, 4, 3, 701), (4, 5, 2, 1024), (2, 2, 2, 4360)]
            .map(|(rows, slots, seq_len, vocab)| Self::Params { rows, slots, seq_len, vocab, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        // A row of decoding for each of sixteen tokens of training.
        let rows = batch.tokens().div_ceil(16);
        Self::Params { rows, slots: rows, seq_len: 1, vocab: Batch::VOCAB, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
