//! RMSNorm, with the residual addition before it and the residual gradient after it.
//!
//! Forward: `s = x (+ delta)`, `rstd = 1 / sqrt(mean(s^2) + eps)`, `y = gamma * s * rstd`.
//! Backward, with `g = gamma * dy` and `n = x * rstd`:
//! `dx = (dresidual +) rstd * (g - n * mean(g * n))`, `dgamma = sum over tokens of dy * n`, left as one
//! partial sum for each group of `rows` tokens; `column_sum.finish` adds them up.
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

use crate::abi::{rmsnorm_bwd_params, rmsnorm_fwd_params};
use crate::host::Views;
use crate::kernel::{Content, Geometry, Kernel, Operand};
use crate::source::Source;
use crate::{Arch, Dtype, Variant, key, operand, source};

key! {
    /// Normalise rows, after adding a residual branch if `residual`.
    pub struct RmsnormFwd = "rmsnorm.fwd" { h: u32, residual: bool, x: Dtype }
}

key! {
    /// Gradient of the rows, added to the residual stream's gradient if `residual`.
    pub struct RmsnormBwd = "rmsnorm.bwd" { h: u32, residual: bool, x: Dtype }
}

/// A warp a row, four rows a block; then a block a row.
const FWD: &[Variant] = &[
    Variant(&[("row_threads", 32), ("threads", 128)]),
    Variant(&[("row_threads", 64), ("threads", 128)]),
    Variant(&[("row_threads", 128), ("threads", 128)]),
    Variant(&[("row_threads", 256), ("threads", 256)]),
    Variant(&[("row_threads", 512), ("threads", 512)]),
    Variant(&[("row_threads", 1024), ("threads", 1024)]),
];

/// Several rows at a time, then a block a row.
const BWD: &[Variant] = &[
    Variant(&[("row_threads", 32), ("threads", 256)]),
    Variant(&[("row_threads", 64), ("threads", 256)]),
    Variant(&[("row_threads", 128), ("threads", 256)]),
    Variant(&[("row_threads", 256), ("threads", 512)]),
    Variant(&[("row_threads", 512), ("threads", 512)]),
];

/// The variant with the fewest threads a row that leave each at most `share` elements to keep in registers.
fn variants(table: &'static [Variant], h: u32, share: u32) -> &'static [Variant] {
    let fits = table.iter().position(|variant| h <= variant.get("row_threads") * share);
    let index = fits.unwrap_or(table.len() - 1);
    &table[index..=index]
}

/// Rows a block works on at a time.
fn rows(variant: Variant) -> u32 {
    variant.threads() / variant.get("row_threads")
}

impl Kernel for RmsnormFwd {
    type Params = rmsnorm_fwd_params;
    const SOURCE: Source = source!("rmsnorm", "fwd.cu", "row.cuh");

    fn variants(&self, _arch: Arch) -> &'static [Variant] {
        variants(FWD, self.h, 32)
    }

    fn geometry(&self, variant: Variant, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(rows(variant)), variant.threads())
    }

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

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1e-6), (19, 1e-2)].map(|(tokens, eps)| Self::Params { tokens, eps, ..Default::default() }).into()
    }
}

impl Kernel for RmsnormBwd {
    type Params = rmsnorm_bwd_params;
    const SOURCE: Source = source!("rmsnorm", "bwd.cu", "row.cuh");

    fn variants(&self, _arch: Arch) -> &'static [Variant] {
        variants(BWD, self.h, 16)
    }

    fn geometry(&self, variant: Variant, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(p.rows), variant.threads())
    }

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

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::bwd(*self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 8), (19, 8), (45, 32)].map(|(tokens, rows)| Self::Params { tokens, rows, ..Default::default() }).into()
    }
}
