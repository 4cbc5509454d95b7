//! Quantizes rows to rotated int8.

use super::host;
use super::rotation::MOST_DEPTH;
use super::rows::{RotatedRows, rows};
pub use crate::abi::Int8Quantize;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance, source};

impl Build for Int8Quantize {
    type Variant = RotatedRows;

    fn variants(&self, _arch: Arch) -> Vec<RotatedRows> {
        rows(self.k, 128, 1280)
    }

    fn source(&self, _variant: RotatedRows) -> Source {
        source!("int8", "quantize.cu", "row.cuh")
    }

    fn geometry(&self, variant: RotatedRows, p: &Self::Params) -> Geometry {
        variant.geometry(p.rows)
    }
}

impl Reference for Int8Quantize {
    /// Each rotation, rows that end within the columns of four threads, and a row that a CTA takes two rounds for.
    fn examples() -> Vec<Self> {
        let bf16 = [16, 48, 96, 272, 320, 896, 4864, MOST_DEPTH].map(|k| Self { k, x: Dtype::Bf16 });
        bf16.into_iter().chain([80, 1536].map(|k| Self { k, x: Dtype::F32 })).collect()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::quantize(self.k, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 29].map(|rows| Self::Params { rows, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { rows: (batch.elems() / u64::from(self.k)) as u32, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
