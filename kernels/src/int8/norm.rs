//! Norms that give rotated int8: a frozen model's, and a training model's.

use super::host;
use super::rows::{Rows, geometry, neighbours, rows};
use crate::abi::{int8_rmsnorm_fwd_params, int8_rmsnorm_params};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Kernel, Operand, Reference, Source, Tolerance, key, operand, source};

key! {
    /// Normalise rows of h, after adding a residual branch if `residual`, to rotated int8.
    pub struct Int8Rmsnorm = "int8.rmsnorm" { h: u32, residual: bool, x: Dtype }
}

key! {
    /// What `rmsnorm.fwd` writes, and the normalised rows as rotated int8.
    pub struct Int8RmsnormFwd = "int8.rmsnorm_fwd" { h: u32, residual: bool, x: Dtype }
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
        if self.x == Dtype::Bf16 { rows(self.h, 768) } else { Vec::new() }
    }

    fn source(&self, _variant: Rows) -> Source {
        Source {
            path: "int8/rmsnorm_fwd.cu",
            text: include_str!("rmsnorm_fwd.cu"),
            headers: &[
                ("int8.h", include_str!("../../abi/int8.h")),
                ("int8_training.h", include_str!("../../abi/int8_training.h")),
                ("int8/norm.cuh", include_str!("norm.cuh")),
                ("int8/row.cuh", include_str!("row.cuh")),
            ],
        }
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
        host::rmsnorm_fwd(*self, p, views);
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
