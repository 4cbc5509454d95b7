//! Gradients of adapters: of their inputs, and of their matrices.

use super::samples::{SAMPLES, Sample};
use super::variants::{self, GemmForm, LoraGemm, Tiling};
use super::{host, lora_gemm, whole_vectors, width};
use crate::abi::lora_wgrad_params;
pub use crate::abi::{LoraDgradA, LoraDgradB, LoraWgrad};
use crate::gemm::tolerance;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance};

impl LoraGemm for LoraDgradB {
    const FORM: GemmForm = GemmForm::StreamMn;

    fn results(p: &Self::Params) -> Vec<(u32, u32)> {
        vec![(p.m, p.rank); p.parts as usize]
    }

    fn vectors(p: &Self::Params) -> bool {
        whole_vectors(&[p.n, p.rank], &p.part, &[p.dy, p.b, p.dt])
    }
}

lora_gemm!(LoraDgradB, "dgrad_b.cu", host::dgrad_b);

impl LoraGemm for LoraDgradA {
    const FORM: GemmForm = GemmForm::Add;

    fn results(p: &Self::Params) -> Vec<(u32, u32)> {
        vec![(p.m, p.k)]
    }

    fn vectors(p: &Self::Params) -> bool {
        whole_vectors(&[p.k, p.rank], &[], &[p.dt, p.a, p.dx])
    }
}

lora_gemm!(LoraDgradA, "dgrad_a.cu", host::dgrad_a);

/// CTAs that keep an H200's 132 multiprocessors busy: two each.
const BUSY: u64 = 264;
/// The edges of a tile: the longer along the matrix's longer edge.
const TILE: (u64, u64) = (128, 64);
/// Fewest rows of a range that is summed separately.
const LEAST_ROWS: u32 = 256;

impl LoraWgrad {
    /// Returns the number of ranges of the rows: enough to keep a GPU busy, as long as their sums take at most a
    /// quarter of the bytes of the adapted matrix of `weights` elements.
    pub fn ranges(p: &lora_wgrad_params, weights: u64) -> u32 {
        let (rows, columns) = (u64::from(width(&p.part)), u64::from(p.columns));
        let elems = rows * columns;
        let tiles = rows.max(columns).div_ceil(TILE.0) * rows.min(columns).div_ceil(TILE.1);
        let busy = BUSY.div_ceil(tiles);
        let small = weights / (8 * elems);
        let most = u64::from(p.m / LEAST_ROWS).min(small);
        if u32::try_from(elems).is_ok() { busy.min(most).max(1) as u32 } else { 1 }
    }
}

impl LoraGemm for LoraWgrad {
    const FORM: GemmForm = GemmForm::Wgrad;

    fn results(p: &Self::Params) -> Vec<(u32, u32)> {
        p.part[..p.parts as usize].iter().map(|part| (part.width, p.columns)).collect()
    }

    fn vectors(p: &Self::Params) -> bool {
        whole_vectors(&[p.n, p.columns], &p.part, &[p.dy, p.x, p.dw, p.partial])
    }

    fn splits(p: &Self::Params) -> u32 {
        p.splits
    }
}

lora_gemm!(LoraWgrad, "wgrad.cu");

impl Reference for LoraWgrad {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::wgrad(p, views);
    }

    /// Gradients of B, then of A, in one range and in more than a shallow sum has slices.
    fn samples(&self) -> Vec<Self::Params> {
        let sample = |s: Sample, splits| {
            let (parts, part) = (s.parts(), s.part());
            let of_b = Self::Params { m: s.m, n: s.n, columns: s.rank, splits, parts, part, ..Default::default() };
            let rank = parts * s.rank;
            let mut of_a = Self::Params { m: s.m, n: rank, columns: s.k, splits, parts: 1, ..Default::default() };
            of_a.part[0].width = rank;
            [of_b, of_a]
        };
        [1, 3].into_iter().flat_map(|splits| SAMPLES.into_iter().flat_map(move |s| sample(s, splits))).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let s = Sample::typical(batch);
        let (parts, part) = (s.parts(), s.part());
        Self::Params { m: s.m, n: s.n, columns: s.rank, splits: 1, parts, part, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}
