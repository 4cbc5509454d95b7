//! Quantizes columns to rotated int8.

use super::host;
use super::rotation::rotation;
pub use crate::abi::Int8Columns;
use crate::abi::int8_columns_params;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance, source, variant};

variant! {
    /// A CTA has a strip of neighboring columns, a thread one rotation block of one of them at a time.
    pub struct Strips {
        /// Fewest CTAs per multiprocessor.
        blocks: u32,
        /// Columns per CTA.
        columns: u32,
        threads: u32,
    }
}

/// Returns the threads of a multiprocessor whose rotation blocks fit registers: values take half of them.
fn threads_at_a_time(rotation: u32) -> u32 {
    (32_768 / rotation).min(512)
}

/// CTAs that fill a GPU.
const ENOUGH: u32 = 128;

impl Strips {
    /// Returns strips of `columns`: with as many threads as keep all of a strip in registers, or go over it in the
    /// fewest rounds.
    fn new(columns: u32, n: u32, rotation: u32) -> Self {
        let (blocks, most) = (n / rotation, threads_at_a_time(rotation));
        let rounds = blocks.div_ceil(most / columns);
        let threads = (blocks.div_ceil(rounds) * columns).next_multiple_of(32);
        Self { blocks: (most / threads).max(1), columns, threads }
    }

    fn ctas(self, p: &int8_columns_params) -> u32 {
        p.columns.div_ceil(self.columns)
    }
}

impl Build for Int8Columns {
    type Variant = Strips;

    /// Strips of whole memory sectors, and of half the columns if those are few.
    fn variants(&self, _arch: Arch) -> Vec<Strips> {
        let strips = |r| [16, 8].map(|columns| Strips::new(columns, self.n, r));
        rotation(self.n).into_iter().flat_map(strips).collect()
    }

    fn source(&self, _variant: Strips) -> Source {
        source!("int8", "columns.cu")
    }

    fn geometry(&self, variant: Strips, p: &Self::Params) -> Geometry {
        Geometry::linear(variant.ctas(p), variant.threads)
    }

    fn problem(&self, p: &Self::Params) -> Option<String> {
        Some(format!("columns={}", p.columns))
    }

    fn select(&self, p: &Self::Params, arch: Arch) -> Strips {
        let all = self.variants(arch);
        let enough = all.iter().find(|strips| strips.ctas(p) >= ENOUGH);
        *enough.unwrap_or(&all[all.len() - 1])
    }
}

impl Reference for Int8Columns {
    /// Each rotation; columns that a CTA takes in one round and in several.
    fn examples() -> Vec<Self> {
        let bf16 = [16, 48, 96, 320, 896, 2064, 9728].map(|n| Self { n, x: Dtype::Bf16 });
        bf16.into_iter().chain([80, 1152].map(|n| Self { n, x: Dtype::F32 })).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::columns(self.n, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 29].map(|columns| Self::Params { columns, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { columns: (batch.elems() / u64::from(self.n)) as u32, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
