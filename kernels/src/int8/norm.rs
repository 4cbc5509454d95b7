//! Norms that give rotated int8: a frozen model's, and those of a model that trains, with their gradients.

use super::host;
use super::rows::{Rows, geometry, neighbours, rows};
use crate::abi::{int8_rmsnorm_bwd_params, int8_rmsnorm_dgrad_params, int8_rmsnorm_fwd_params, int8_rmsnorm_params};
use crate::host::Views;
use crate::rmsnorm::{RmsnormBwd, RmsnormDgrad, RmsnormFwd};
use crate::{
    Arch, Batch, Build, Content, Dtype, Geometry, Kernel, Operand, Reference, Source, Tolerance, key, operand, source,
};

key! {
    /// Normalise rows of h, after adding a residual branch if `residual`, to rotated int8.
    pub struct Int8Rmsnorm = "int8.rmsnorm" { h: u32, residual: bool, x: Dtype }
}

key! {
    /// What `rmsnorm.fwd` writes, and the normalised rows as rotated int8.
    pub struct Int8RmsnormFwd = "int8.rmsnorm_fwd" { h: u32, residual: bool, x: Dtype }
}

key! {
    /// What `rmsnorm.bwd` writes, and the gradient of the rows as rotated int8.
    pub struct Int8RmsnormBwd = "int8.rmsnorm_bwd" { h: u32, residual: bool, x: Dtype }
}

key! {
    /// The same without gamma's gradient.
    pub struct Int8RmsnormDgrad = "int8.rmsnorm_dgrad" { h: u32, residual: bool, x: Dtype }
}

/// Columns of the widest rows whose threads have registers for the gradients of gamma, too.
const MOST_COLUMNS: u32 = 8192;

/// A source that reads and writes what training does.
macro_rules! source_of {
    ($file:literal, $header:literal) => {
        Source {
            path: concat!("int8/", $file),
            text: include_str!($file),
            headers: &[
                ("int8.h", include_str!("../../abi/int8.h")),
                ("int8_training.h", include_str!("../../abi/int8_training.h")),
                (concat!("int8/", $header), include_str!($header)),
                ("int8/row.cuh", include_str!("row.cuh")),
            ],
        }
    };
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
        if self.x == Dtype::Bf16 { rows(self.h, 128, 1024) } else { Vec::new() }
    }

    fn source(&self, _variant: Rows) -> Source {
        source!("int8", "rmsnorm.cu", "norm.cuh", "row.cuh")
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
        host::rmsnorm(RmsnormFwd { h: self.h, residual: self.residual, x: self.x }, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1e-6), (19, 1e-2)].map(|(tokens, eps)| Self::Params { tokens, eps, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), eps: 1e-6, ..Default::default() }
    }

    /// The sum of squares has an order of its own, so single values may fall to the neighbouring integer.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbours(operand)
    }
}

impl Kernel for Int8RmsnormFwd {
    type Params = int8_rmsnorm_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        let mut operands = vec![
            operand!(Read Self::Params, x: self.x, tokens * h),
            operand!(Read Self::Params, gamma: self.x, h),
            operand!(Write Self::Params, y: self.x, tokens * h),
            operand!(Write Self::Params, rstd: Dtype::F32, tokens),
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

impl Build for Int8RmsnormFwd {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        if self.x == Dtype::Bf16 { rows(self.h, 128, 768) } else { Vec::new() }
    }

    fn source(&self, _variant: Rows) -> Source {
        source_of!("rmsnorm_fwd.cu", "norm.cuh")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        geometry(variant, p.tokens)
    }
}

impl Reference for Int8RmsnormFwd {
    fn examples() -> Vec<Self> {
        let keys = [(48, true), (96, false), (272, true), (896, false), (3584, true)];
        keys.map(|(h, residual)| Self { h, residual, x: Dtype::Bf16 }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::rmsnorm_fwd(RmsnormFwd { h: self.h, residual: self.residual, x: self.x }, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1e-6), (19, 1e-2)].map(|(tokens, eps)| Self::Params { tokens, eps, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), eps: 1e-6, ..Default::default() }
    }

    /// As of `int8.rmsnorm`; and a y that is rounded to the neighbouring number moves its whole rotation block a little.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbours(operand)
    }
}

impl Int8RmsnormBwd {
    /// Whether there is a kernel for rows of h.
    pub fn fits(h: u32) -> bool {
        h <= MOST_COLUMNS
    }
}

impl Kernel for Int8RmsnormBwd {
    type Params = int8_rmsnorm_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        let mut operands = vec![
            operand!(Read Self::Params, dy: self.x, tokens * h),
            operand!(Read Self::Params, x: self.x, tokens * h),
            operand!(Read Self::Params, gamma: self.x, h),
            operand!(Read Self::Params, rstd: Dtype::F32, tokens).with(Content::Uniform(0.5, 1.5)),
            operand!(Write Self::Params, dx: self.x, tokens * h),
            operand!(Write Self::Params, dgamma_partial: Dtype::F32, u64::from(p.tokens.div_ceil(p.rows)) * h),
            operand!(Write Self::Params, q: Dtype::I8, tokens * h),
            operand!(Write Self::Params, scale: Dtype::F32, tokens),
        ];
        if self.residual {
            operands.push(operand!(Read Self::Params, dresidual: self.x, tokens * h));
        }
        operands
    }
}

impl Build for Int8RmsnormBwd {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        let fits = self.x == Dtype::Bf16 && Self::fits(self.h);
        if fits { rows(self.h, 256, 256) } else { Vec::new() }
    }

    fn source(&self, _variant: Rows) -> Source {
        source_of!("rmsnorm_bwd.cu", "norm_bwd.cuh")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens.div_ceil(p.rows), variant.threads)
    }
}

impl Reference for Int8RmsnormBwd {
    fn examples() -> Vec<Self> {
        let keys = [(48, true), (96, false), (272, true), (896, false), (1024, true), (5120, true)];
        keys.map(|(h, residual)| Self { h, residual, x: Dtype::Bf16 }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::rmsnorm_bwd(RmsnormBwd { h: self.h, residual: self.residual, x: self.x }, p.rows, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 8), (19, 8), (45, 32)].map(|(tokens, rows)| Self::Params { tokens, rows, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), rows: 32, ..Default::default() }
    }

    /// As of `int8.rmsnorm_fwd`.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbours(operand)
    }
}

impl Kernel for Int8RmsnormDgrad {
    type Params = int8_rmsnorm_dgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let (tokens, h) = (u64::from(p.tokens), u64::from(self.h));
        let mut operands = vec![
            operand!(Read Self::Params, dy: self.x, tokens * h),
            operand!(Read Self::Params, x: self.x, tokens * h),
            operand!(Read Self::Params, gamma: self.x, h),
            operand!(Read Self::Params, rstd: Dtype::F32, tokens).with(Content::Uniform(0.5, 1.5)),
            operand!(Write Self::Params, dx: self.x, tokens * h),
            operand!(Write Self::Params, q: Dtype::I8, tokens * h),
            operand!(Write Self::Params, scale: Dtype::F32, tokens),
        ];
        if self.residual {
            operands.push(operand!(Read Self::Params, dresidual: self.x, tokens * h));
        }
        operands
    }
}

impl Build for Int8RmsnormDgrad {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        if self.x == Dtype::Bf16 { rows(self.h, 128, 512) } else { Vec::new() }
    }

    fn source(&self, _variant: Rows) -> Source {
        source_of!("rmsnorm_dgrad.cu", "norm_bwd.cuh")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        geometry(variant, p.tokens)
    }
}

impl Reference for Int8RmsnormDgrad {
    fn examples() -> Vec<Self> {
        let keys = [(48, true), (96, false), (272, true), (896, false), (1024, true)];
        keys.map(|(h, residual)| Self { h, residual, x: Dtype::Bf16 }).into()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::rmsnorm_dgrad(RmsnormDgrad { h: self.h, residual: self.residual, x: self.x }, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 19].map(|tokens| Self::Params { tokens, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), ..Default::default() }
    }

    /// As of `int8.rmsnorm_fwd`.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbours(operand)
    }
}
