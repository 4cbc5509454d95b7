//! RMSNorm, with the residual addition before it and the residual gradient after it.
//!
//! Forward: `s = x (+ delta)`, `rstd = 1 / sqrt(mean(s^2) + eps)`, `y = gamma * s * rstd`. Backward, with
//! `g = gamma * dy` and `n = x * rstd`: `dx = (dresidual +) rstd * (g - n * mean(g * n))`,
//! `dgamma = sum over tokens of dy * n`, left as one partial sum for each group of `rows` tokens; `column_sum.finish`
//! adds them up. `rmsnorm.dgrad` is `dx` alone, for a frozen gamma: one pass and no partial sums. With `gamma=1+w`
//! gamma is one plus the weight that is read; the gradients are the same.
//!
//! `sum` is rounded to its dtype before it is normalized, so the stored values are normalized. With `out=bf16+i8` y or
//! dx are also written in rotated int8 ([`crate::int8`]), from the bf16 values. With `out=i8` y is written only in
//! int8, without that rounding, and nothing is kept for a backward pass: neither y in bf16 nor `rstd`. Source: Zhang
//! and Sennrich, "Root Mean Square Layer Normalization", 2019.

mod host;

pub(crate) use host::{mean, rstd};

pub use crate::abi::{RmsnormBwd, RmsnormDgrad, RmsnormFwd};

use crate::host::Views;
use crate::int8::{RotatedRows, int8_source, neighbors, rows};
use crate::{Arch, Batch, Build, Dtype, Gamma, Geometry, Operand, Out, Reference, Source, Tolerance, source, variant};

variant! {
    /// Several rows at a time, or a CTA per row.
    pub struct PlainRows {
        /// Threads per row.
        row_threads: u32,
        threads: u32,
    }
}

variant! {
    /// Layout of rows over threads: plain, or for rotation and quantization.
    pub enum Layout {
        PlainRows,
        RotatedRows,
    }
}

impl Layout {
    /// A CTA takes as many rows as fit its threads.
    pub(crate) fn geometry(self, rows: u32) -> Geometry {
        match self {
            Layout::PlainRows(PlainRows { row_threads, threads }) => {
                Geometry::linear(rows.div_ceil(threads / row_threads), threads)
            }
            Layout::RotatedRows(rotated) => rotated.geometry(rows),
        }
    }
}

/// (`row_threads`, `threads`): a warp per row, four rows per CTA; then a CTA per row.
const FWD: [(u32, u32); 6] = [(32, 128), (64, 128), (128, 128), (256, 256), (512, 512), (1024, 1024)];

/// Several rows at a time, then a CTA per row.
const BWD: [(u32, u32); 5] = [(32, 256), (64, 256), (128, 256), (256, 512), (512, 512)];

/// Like forward, with more registers per element.
const DGRAD: [(u32, u32); 5] = [(32, 128), (64, 128), (128, 128), (256, 256), (512, 512)];

/// Widest rows that are quantized beside their gradients of gamma: threads have one share each.
const MOST_COLUMNS: u32 = 8192;

/// Returns the variant with the fewest threads per row that leave each at most `share` elements in registers; else the
/// last.
fn fewest(table: &[(u32, u32)], h: u32, share: u32) -> Vec<Layout> {
    let fits = table.iter().find(|(row_threads, _)| h <= row_threads * share);
    let row = fits.or(table.last());
    let rows = row.map(|(row_threads, threads)| PlainRows { row_threads: *row_threads, threads: *threads });
    rows.map(Layout::PlainRows).into_iter().collect()
}

/// Like [`rows`], if a kernel quantizes rows in this dtype.
fn rotated(x: Dtype, h: u32, several: u32, threads: u32) -> Vec<Layout> {
    let rows = if x == Dtype::Bf16 { rows(h, several, threads) } else { Vec::new() };
    rows.into_iter().map(Layout::RotatedRows).collect()
}

/// Examples where rows are multiplied by one plus the weight, one in each layout and dtype.
fn one_plus(int8: Out) -> [(u32, Out, bool, Dtype); 3] {
    [(40, Out::Dense, true, Dtype::Bf16), (300, Out::Dense, false, Dtype::F32), (96, int8, true, Dtype::Bf16)]
}

impl Build for RmsnormFwd {
    type Variant = Layout;

    fn variants(&self, _arch: Arch) -> Vec<Layout> {
        match self.out {
            Out::Dense => fewest(&FWD, self.h, 32),
            Out::DenseAndInt8 => rotated(self.x, self.h, 128, 768),
            Out::Int8 => rotated(self.x, self.h, 128, 1024),
        }
    }

    fn source(&self, variant: Layout) -> Source {
        match variant {
            Layout::PlainRows(_) => source!("rmsnorm", "fwd.cu", "row.cuh", "fwd.cuh"),
            Layout::RotatedRows(_) => int8_source!("rmsnorm", "fwd.cu", "rmsnorm", "fwd.cuh"),
        }
    }

    fn geometry(&self, variant: Layout, p: &Self::Params) -> Geometry {
        variant.geometry(p.tokens)
    }
}

impl Reference for RmsnormFwd {
    fn examples() -> Vec<Self> {
        let dense = [(33, true, Dtype::Bf16), (1100, false, Dtype::F32)];
        let dense = dense.map(|(h, residual, x)| Self { gamma: Gamma::Weight, h, out: Out::Dense, residual, x });
        let int8 = [(48, true), (96, false), (272, true), (896, false), (3584, true)].map(|(h, residual)| {
            [Out::DenseAndInt8, Out::Int8].map(|out| Self { gamma: Gamma::Weight, h, out, residual, x: Dtype::Bf16 })
        });
        let one_plus =
            one_plus(Out::Int8).map(|(h, out, residual, x)| Self { gamma: Gamma::OnePlus, h, out, residual, x });
        dense.into_iter().chain(int8.into_iter().flatten()).chain(one_plus).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1e-6), (19, 1e-2)].map(|(tokens, eps)| Self::Params { tokens, eps, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), eps: 1e-6, ..Default::default() }
    }

    /// The sum over a row has another order, so single values may fall to the neighboring integer.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbors(operand)
    }
}

impl RmsnormBwd {
    /// Returns the formats of the gradients of rows of h, of those requested.
    pub fn writes(h: u32, out: Out) -> Out {
        if h <= MOST_COLUMNS { out } else { Out::Dense }
    }
}

impl Build for RmsnormBwd {
    type Variant = Layout;

    fn variants(&self, arch: Arch) -> Vec<Layout> {
        match self.out {
            Out::Dense => fewest(&BWD, self.h, 16),
            Out::DenseAndInt8 if Self::writes(self.h, self.out) == self.out => {
                // A multiprocessor's registers hold the rows of two CTAs, but not of the widest, and not as ptxas
                // allocates them for sm_100 and later.
                let two = self.h <= 4096 && arch.compute_capability().is_some_and(|(major, _)| major < 10);
                rotated(self.x, self.h, 256, if two { 512 } else { 256 })
            }
            Out::DenseAndInt8 | Out::Int8 => Vec::new(),
        }
    }

    fn source(&self, variant: Layout) -> Source {
        match variant {
            Layout::PlainRows(_) => source!("rmsnorm", "bwd.cu", "row.cuh", "bwd.cuh"),
            Layout::RotatedRows(_) => int8_source!("rmsnorm", "bwd.cu", "rmsnorm", "bwd.cuh"),
        }
    }

    fn geometry(&self, variant: Layout, p: &Self::Params) -> Geometry {
        let (Layout::PlainRows(PlainRows { threads, .. }) | Layout::RotatedRows(RotatedRows { threads, .. })) = variant;
        Geometry::linear(p.tokens.div_ceil(p.rows), threads)
    }
}

impl Reference for RmsnormBwd {
    fn examples() -> Vec<Self> {
        let keys =
            [(40, false, Dtype::Bf16), (40, true, Dtype::Bf16), (300, false, Dtype::F32), (300, true, Dtype::F32)];
        let dense = keys.map(|(h, residual, x)| Self { gamma: Gamma::Weight, h, out: Out::Dense, residual, x });
        let int8 = [
            (48, true),
            (96, false),
            (272, true),
            (896, false),
            (1024, true),
            (1536, true),
            (2576, false),
            (4096, true),
            (5120, true),
        ];
        let int8 = int8.map(|(h, residual)| Self {
            gamma: Gamma::Weight,
            h,
            out: Out::DenseAndInt8,
            residual,
            x: Dtype::Bf16,
        });
        let one_plus = one_plus(Out::DenseAndInt8);
        let one_plus = one_plus.map(|(h, out, residual, x)| Self { gamma: Gamma::OnePlus, h, out, residual, x });
        dense.into_iter().chain(int8).chain(one_plus).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 8), (19, 8), (45, 32)].map(|(tokens, rows)| Self::Params { tokens, rows, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), rows: 32, ..Default::default() }
    }

    /// The sum over a row has another order, so single values may fall to the neighboring integer.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbors(operand)
    }
}

impl Build for RmsnormDgrad {
    type Variant = Layout;

    fn variants(&self, _arch: Arch) -> Vec<Layout> {
        match self.out {
            Out::Dense => fewest(&DGRAD, self.h, 16),
            Out::DenseAndInt8 => rotated(self.x, self.h, 128, 512),
            Out::Int8 => Vec::new(),
        }
    }

    fn source(&self, variant: Layout) -> Source {
        // A header of its own: other users of `rmsnorm.h` do not depend on it.
        match variant {
            Layout::PlainRows(_) => Source {
                path: "rmsnorm/dgrad.cu",
                text: include_str!("dgrad.cu"),
                headers: &[
                    ("rmsnorm_dgrad.h", include_str!("rmsnorm_dgrad.h")),
                    ("rmsnorm/row.cuh", include_str!("row.cuh")),
                    ("rmsnorm/dgrad.cuh", include_str!("dgrad.cuh")),
                ],
                common: &crate::COMMON,
            },
            Layout::RotatedRows(_) => int8_source!("rmsnorm", "dgrad.cu", "rmsnorm_dgrad", "dgrad.cuh"),
        }
    }

    fn geometry(&self, variant: Layout, p: &Self::Params) -> Geometry {
        variant.geometry(p.tokens)
    }
}

impl Reference for RmsnormDgrad {
    fn examples() -> Vec<Self> {
        let keys =
            [(40, false, Dtype::Bf16), (40, true, Dtype::Bf16), (300, false, Dtype::F32), (1100, true, Dtype::F32)];
        let dense = keys.map(|(h, residual, x)| Self { gamma: Gamma::Weight, h, out: Out::Dense, residual, x });
        let int8 = [(48, true), (96, false), (272, true), (896, false), (1024, true)];
        let int8 = int8.map(|(h, residual)| Self {
            gamma: Gamma::Weight,
            h,
            out: Out::DenseAndInt8,
            residual,
            x: Dtype::Bf16,
        });
        let one_plus = one_plus(Out::DenseAndInt8);
        let one_plus = one_plus.map(|(h, out, residual, x)| Self { gamma: Gamma::OnePlus, h, out, residual, x });
        dense.into_iter().chain(int8).chain(one_plus).collect()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::dgrad(*self, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 19].map(|tokens| Self::Params { tokens, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), ..Default::default() }
    }

    /// The sum over a row has another order, so single values may fall to the neighboring integer.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbors(operand)
    }
}
