//! Rows to rotated int8, and the norm that gives them.

use super::{host, rotation};
use crate::abi::{int8_quantize_params, int8_rmsnorm_params};
use crate::host::Views;
use crate::{
    Arch, Batch, Build, Content, Dtype, Format, Geometry, Kernel, Operand, Reference, Source, Tolerance, key, operand,
    source, variant,
};

key! {
    /// Rows of k to rotated int8.
    pub struct Int8Quantize = "int8.quantize" { k: u32, x: Dtype }
}

key! {
    /// Normalise rows of h, after adding a residual branch if `residual`, to rotated int8.
    pub struct Int8Rmsnorm = "int8.rmsnorm" { h: u32, residual: bool, x: Dtype }
}

variant! {
    /// Several rows at a time, or a CTA a row.
    pub struct Rows {
        /// CTAs that must fit on a multiprocessor.
        blocks: u32,
        /// Threads that work on a row.
        row_threads: u32,
        /// Threads of a CTA.
        threads: u32,
    }
}

/// Columns of a row that a thread has in registers at a time.
const SHARE: u32 = 32;
/// Most threads of a CTA: with more there are fewer registers than a share needs.
const MOST_THREADS: u32 = 1024;
/// Threads of a CTA that has several rows.
const FEW_THREADS: u32 = 128;
/// Most CTAs that must fit on a multiprocessor: with more of the smallest there are fewer registers than a share needs.
const MOST_BLOCKS: u32 = 8;

/// Whole warps for a row, as few as have a share for each thread, if the row is blocks that can be rotated; and as many CTAs on a
/// multiprocessor as have so many threads together.
fn rows(columns: u32, threads: u32) -> Vec<Rows> {
    let rounds = columns.div_ceil(SHARE * MOST_THREADS);
    let row_threads = columns.div_ceil(SHARE * rounds.max(1)).next_multiple_of(32);
    let own = row_threads * (FEW_THREADS / row_threads).max(1);
    let blocks = if rounds == 1 { (threads / own).clamp(1, MOST_BLOCKS) } else { 1 };
    rotation(columns).map(|_| Rows { blocks, row_threads, threads: own }).into_iter().collect()
}

fn geometry(variant: Rows, rows: u32) -> Geometry {
    Geometry::linear(rows.div_ceil(variant.threads / variant.row_threads), variant.threads)
}

impl Kernel for Int8Quantize {
    type Params = int8_quantize_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let elems = u64::from(p.rows) * u64::from(self.k);
        vec![
            operand!(Read Self::Params, x: self.x, elems).with(Content::Rows(self.k)),
            operand!(Write Self::Params, q: Dtype::I8, elems),
            operand!(Write Self::Params, scale: Dtype::F32, p.rows),
        ]
    }
}

impl Build for Int8Quantize {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        rows(self.k, 1280)
    }

    fn source(&self, _variant: Rows) -> Source {
        source!("int8", "quantize.cu", "row.cuh")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        geometry(variant, p.rows)
    }
}

impl Reference for Int8Quantize {
    /// Each rotation, ends of rows within what four threads share, and a row that a CTA takes two rounds for.
    fn examples() -> Vec<Self> {
        let bf16 = [16, 48, 96, 272, 320, 896, 4864, 33_792].map(|k| Self { k, x: Dtype::Bf16 });
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

impl Kernel for Int8Rmsnorm {
    type Params = int8_rmsnorm_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        let mut operands = vec![
            operand!(Read Self::Params, x: self.x, tokens * h),
            operand!(Read Self::Params, gamma: self.x, h),
            operand!(Write Self::Params, q: Dtype::I8, tokens * h),
            operand!(Write Self::Params, scale: Dtype::F32, tokens),
        ];
        if self.residual {
            operands.push(operand!(Read Self::Params, delta: self.x, tokens * h));
            operands.push(operand!(Write Self::Params, sum: self.x, tokens * h));
        }
        operands
    }
}

impl Build for Int8Rmsnorm {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        if self.x == Dtype::Bf16 { rows(self.h, 1024) } else { Vec::new() }
    }

    fn source(&self, _variant: Rows) -> Source {
        source!("int8", "rmsnorm.cu", "row.cuh")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        geometry(variant, p.tokens)
    }
}

impl Reference for Int8Rmsnorm {
    fn examples() -> Vec<Self> {
        let keys = [(48, true), (96, false), (272, true), (896, false), (3584, true)];
        keys.map(|(h, residual)| Self { h, residual, x: Dtype::Bf16 }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::rmsnorm(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1e-6), (19, 1e-2)].map(|(tokens, eps)| Self::Params { tokens, eps, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), eps: 1e-6, ..Default::default() }
    }

    /// The sum of squares has an order of its own, so single values may fall to the neighbouring integer.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        match operand.format {
            Format::Dense(Dtype::I8) => Tolerance { norm: 1e-3, element: 1.01 / 127.0, absolute: 0.0 },
            format => Tolerance::of(format),
        }
    }
}
