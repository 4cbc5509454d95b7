//! Quantizes columns to rotated int8.

use super::host;
use super::rotation::rotation;
pub use crate::abi::Int8Columns;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Fixed, Geometry, Operand, Reference, Source, Tolerance, source, variant};

/// Columns of a strip: few, so that narrow matrices have a strip for each multiprocessor.
const COLUMNS: u32 = 8;

variant! {
    /// A CTA has a strip of neighboring columns.
    pub struct Strips {
        /// Fewest CTAs per multiprocessor.
        blocks: u32,
        /// Columns of a strip.
        columns: Fixed<COLUMNS>,
        threads: u32,
    }
}

/// Rows of two columns that four threads share.
const SEGMENT: u32 = 128;

/// Threads of a multiprocessor whose values registers hold.
const MOST_THREADS: u32 = 512;

impl Build for Int8Columns {
    type Variant = Strips;

    /// As many threads as keep all of a strip in registers, or go over it in the fewest rounds.
    fn variants(&self, _arch: Arch) -> Vec<Strips> {
        let (segments, of_segment) = (self.n.div_ceil(SEGMENT), 2 * COLUMNS);
        let rounds = segments.div_ceil(MOST_THREADS / of_segment);
        let threads = (segments.div_ceil(rounds.max(1)) * of_segment).next_multiple_of(32);
        let blocks = MOST_THREADS.checked_div(threads).unwrap_or(1);
        rotation(self.n).map(|_| Strips { blocks, columns: Fixed, threads }).into_iter().collect()
    }

    /// A thread loads pairs of columns.
    fn admits(&self, _variant: Strips, p: &Self::Params) -> bool {
        p.columns.is_multiple_of(2)
    }

    fn source(&self, _variant: Strips) -> Source {
        source!("int8", "columns.cu")
    }

    fn geometry(&self, variant: Strips, p: &Self::Params) -> Geometry {
        Geometry::linear(p.columns.div_ceil(COLUMNS), variant.threads)
    }
}

impl Reference for Int8Columns {
    /// Each rotation; columns that a CTA takes in one round and in several.
    fn examples() -> Vec<Self> {
        let bf16 = [16, 48, 96, 320, 896, 4112, 9728, 12352].map(|n| Self { n, x: Dtype::Bf16 });
        bf16.into_iter().chain([80, 1152].map(|n| Self { n, x: Dtype::F32 })).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::columns(self.n, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [2, 30].map(|columns| Self::Params { columns, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { columns: (batch.elems() / u64::from(self.n)) as u32 & !1, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
