//! RMSNorm, with the residual addition before it and the residual gradient after it.
//!
//! Forward: `s = x (+ delta)`, `rstd = 1 / sqrt(mean(s^2) + eps)`, `y = gamma * s * rstd`.
//! Backward, with `g = gamma * dy` and `n = x * rstd`:
//! `dx = (dresidual +) rstd * (g - n * mean(g * n))`, `dgamma = sum over tokens of dy * n`, left as one
//! partial sum for each group of `rows` tokens; `column_sum.finish` adds them up. `rmsnorm.dgrad` is `dx` alone, where gamma does
//! not train: one pass and no partial sums.
//!
//! | operand | shape | dtype |
//! | --- | --- | --- |
//! | `x`, `delta`, `sum`, `y`, `dy`, `dresidual`, `dx` | tokens x h | x |
//! | `gamma` | h | x |
//! | `rstd` | tokens | f32 |
//! | `dgamma_partial` | ceil(tokens / rows) x h | f32 |
//!
//! `sum` is rounded to its dtype before it is normalised, so that what is normalised is what is stored.
//! Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

mod host;

pub(crate) use host::{add_residual, bwd, dgrad, mean, rstd};

use crate::abi::{rmsnorm_bwd_params, rmsnorm_dgrad_params, rmsnorm_fwd_params};
use crate::host::Views;
use crate::{
    Arch, Batch, Build, Content, Dtype, Geometry, Kernel, Operand, Reference, Source, key, operand, source, variant,
};

key! {
    /// Normalise rows, after adding a residual branch if `residual`.
    pub struct RmsnormFwd = "rmsnorm.fwd" { h: u32, residual: bool, x: Dtype }
}

key! {
    /// Gradient of the rows, added to the residual stream's gradient if `residual`.
    pub struct RmsnormBwd = "rmsnorm.bwd" { h: u32, residual: bool, x: Dtype }
}

key! {
    /// The same without gamma's gradient.
    pub struct RmsnormDgrad = "rmsnorm.dgrad" { h: u32, residual: bool, x: Dtype }
}

variant! {
    /// Several rows at a time, or a CTA a row.
    pub struct Rows {
        /// Threads that work on a row.
        row_threads: u32,
        /// Threads of a CTA.
        threads: u32,
    }
}

impl Rows {
    /// Rows a CTA works on at a time.
    fn at_a_time(self) -> u32 {
        self.threads / self.row_threads
    }
}

/// (`row_threads`, `threads`): a warp a row, four rows a CTA; then a CTA a row.
const FWD: [(u32, u32); 6] = [(32, 128), (64, 128), (128, 128), (256, 256), (512, 512), (1024, 1024)];

/// Several rows at a time, then a CTA a row.
const BWD: [(u32, u32); 5] = [(32, 256), (64, 256), (128, 256), (256, 512), (512, 512)];

/// As forward, with more to keep for each element.
const DGRAD: [(u32, u32); 5] = [(32, 128), (64, 128), (128, 128), (256, 256), (512, 512)];

/// The variant with the fewest threads a row that leave each at most `share` elements to keep in registers; else the last.
fn fewest(table: &[(u32, u32)], h: u32, share: u32) -> Vec<Rows> {
    let fits = table.iter().find(|(row_threads, _)| h <= row_threads * share);
    let row = fits.or(table.last());
    row.map(|(row_threads, threads)| Rows { row_threads: *row_threads, threads: *threads }).into_iter().collect()
}

impl Kernel for RmsnormFwd {
    type Params = rmsnorm_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        let mut operands = vec![
            operand!(Read Self::Params, x: self.x, tokens * h),
            operand!(Read Self::Params, gamma: self.x, h),
            operand!(Write Self::Params, y: self.x, tokens * h),
            operand!(Write Self::Params, rstd: Dtype::F32, tokens),
        ];
        if self.residual {
            operands.push(operand!(Read Self::Params, delta: self.x, tokens * h));
            operands.push(operand!(Write Self::Params, sum: self.x, tokens * h));
        }
        operands
    }
}

impl Build for RmsnormFwd {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        fewest(&FWD, self.h, 32)
    }

    fn source(&self, _variant: Rows) -> Source {
        source!("rmsnorm", "fwd.cu", "row.cuh")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(variant.at_a_time()), variant.threads)
    }
}

impl Reference for RmsnormFwd {
    fn examples() -> Vec<Self> {
        vec![Self { h: 33, residual: true, x: Dtype::Bf16 }, Self { h: 1100, residual: false, x: Dtype::F32 }]
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
}

impl Kernel for RmsnormBwd {
    type Params = rmsnorm_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        let mut operands = vec![
            operand!(Read Self::Params, dy: self.x, tokens * h),
            operand!(Read Self::Params, x: self.x, tokens * h),
            operand!(Read Self::Params, gamma: self.x, h),
            operand!(Read Self::Params, rstd: Dtype::F32, tokens).with(Content::Uniform(0.5, 1.5)),
            operand!(Write Self::Params, dx: self.x, tokens * h),
            operand!(Write Self::Params, dgamma_partial: Dtype::F32, u64::from(p.tokens.div_ceil(p.rows)) * h),
        ];
        if self.residual {
            operands.push(operand!(Read Self::Params, dresidual: self.x, tokens * h));
        }
        operands
    }
}

impl Build for RmsnormBwd {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        fewest(&BWD, self.h, 16)
    }

    fn source(&self, _variant: Rows) -> Source {
        source!("rmsnorm", "bwd.cu", "row.cuh")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(p.rows), variant.threads)
    }
}

impl Reference for RmsnormBwd {
    fn examples() -> Vec<Self> {
        let keys =
            [(40, false, Dtype::Bf16), (40, true, Dtype::Bf16), (300, false, Dtype::F32), (300, true, Dtype::F32)];
        keys.map(|(h, residual, x)| Self { h, residual, x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 8), (19, 8), (45, 32)].map(|(tokens, rows)| Self::Params { tokens, rows, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), rows: 32, ..Default::default() }
    }
}

impl Kernel for RmsnormDgrad {
    type Params = rmsnorm_dgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        let mut operands = vec![
            operand!(Read Self::Params, dy: self.x, tokens * h),
            operand!(Read Self::Params, x: self.x, tokens * h),
            operand!(Read Self::Params, gamma: self.x, h),
            operand!(Read Self::Params, rstd: Dtype::F32, tokens).with(Content::Uniform(0.5, 1.5)),
            operand!(Write Self::Params, dx: self.x, tokens * h),
        ];
        if self.residual {
            operands.push(operand!(Read Self::Params, dresidual: self.x, tokens * h));
        }
        operands
    }
}

impl Build for RmsnormDgrad {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        fewest(&DGRAD, self.h, 16)
    }

    fn source(&self, _variant: Rows) -> Source {
        // A header of its own: what else is built of `rmsnorm.h` does not depend on it.
        Source {
            path: "rmsnorm/dgrad.cu",
            text: include_str!("dgrad.cu"),
            headers: &[
                ("norm_dgrad.h", include_str!("../../abi/norm_dgrad.h")),
                ("rmsnorm.h", include_str!("../../abi/rmsnorm.h")),
                ("rmsnorm/row.cuh", include_str!("row.cuh")),
            ],
        }
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(variant.at_a_time()), variant.threads)
    }
}

impl Reference for RmsnormDgrad {
    fn examples() -> Vec<Self> {
        let keys =
            [(40, false, Dtype::Bf16), (40, true, Dtype::Bf16), (300, false, Dtype::F32), (1100, true, Dtype::F32)];
        keys.map(|(h, residual, x)| Self { h, residual, x }).into()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        dgrad(*self, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 19].map(|tokens| Self::Params { tokens, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), ..Default::default() }
    }
}
