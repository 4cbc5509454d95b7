//! SwiGLU that gives rotated int8, forward and backward.

use super::host;
use super::rows::{Rows, geometry, neighbours, rows};
use crate::abi::{int8_gated_bwd_params, int8_gated_params};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Kernel, Operand, Reference, Source, Tolerance, key, operand};

key! {
    /// Gate rows of n up projections, to rotated int8; what that is of is written too if `kept`.
    pub struct Int8Gated = "int8.gated" { kept: bool, n: u32 }
}

key! {
    /// Gradients of gate and up, and both as one row of rotated int8.
    pub struct Int8GatedBwd = "int8.gated_bwd" { n: u32 }
}

/// Elements of a row that are rotated together at most: where n is a multiple of it, no rotation block has elements of gate and up.
const ROTATION: u32 = 128;

/// A source of the family that works on rows.
macro_rules! source_of {
    ($file:literal) => {
        Source {
            path: concat!("int8/", $file),
            text: include_str!($file),
            headers: &[
                ("int8.h", include_str!("../../abi/int8.h")),
                ("int8_training.h", include_str!("../../abi/int8_training.h")),
                ("int8/row.cuh", include_str!("row.cuh")),
            ],
        }
    };
}

impl Kernel for Int8Gated {
    type Params = int8_gated_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let elems = u64::from(p.tokens) * u64::from(self.n);
        let mut operands = vec![
            operand!(Read Self::Params, gate_up: Dtype::Bf16, 2 * elems),
            operand!(Write Self::Params, q: Dtype::I8, elems),
            operand!(Write Self::Params, scale: Dtype::F32, p.tokens),
        ];
        if self.kept {
            operands.push(operand!(Write Self::Params, y: Dtype::Bf16, elems));
        }
        operands
    }
}

impl Build for Int8Gated {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        rows(self.n, 128, 1024)
    }

    fn source(&self, _variant: Rows) -> Source {
        source_of!("gated.cu")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        geometry(variant, p.tokens)
    }
}

impl Reference for Int8Gated {
    fn examples() -> Vec<Self> {
        let keys = [(48, true), (96, false), (272, true), (1536, false), (4864, true)];
        keys.map(|(n, kept)| Self { kept, n }).into()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::gated(self.n, self.kept, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 19].map(|tokens| Self::Params { tokens, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: (batch.elems() / u64::from(self.n)) as u32, ..Default::default() }
    }

    /// The exponential is approximate: a y that is rounded to the neighbouring number moves its whole rotation block a little.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbours(operand)
    }
}

impl Int8GatedBwd {
    /// Whether there is a kernel for rows of n: gate and up are whole rotation blocks, and registers hold both.
    pub fn fits(n: u32) -> bool {
        n.is_multiple_of(ROTATION) && n <= 16_384
    }
}

impl Kernel for Int8GatedBwd {
    type Params = int8_gated_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let elems = u64::from(p.tokens) * u64::from(self.n);
        vec![
            operand!(Read Self::Params, gate_up: Dtype::Bf16, 2 * elems),
            operand!(Read Self::Params, dy: Dtype::Bf16, elems),
            operand!(Write Self::Params, dgate_up: Dtype::Bf16, 2 * elems),
            operand!(Write Self::Params, q: Dtype::I8, 2 * elems),
            operand!(Write Self::Params, scale: Dtype::F32, p.tokens),
        ]
    }
}

impl Build for Int8GatedBwd {
    type Variant = Rows;

    fn variants(&self, _arch: Arch) -> Vec<Rows> {
        if Self::fits(self.n) { rows(self.n, 128, 512) } else { Vec::new() }
    }

    fn source(&self, _variant: Rows) -> Source {
        source_of!("gated_bwd.cu")
    }

    fn geometry(&self, variant: Rows, p: &Self::Params) -> Geometry {
        geometry(variant, p.tokens)
    }
}

impl Reference for Int8GatedBwd {
    fn examples() -> Vec<Self> {
        [128, 1536, 4864].map(|n| Self { n }).into()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::gated_bwd(self.n, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 19].map(|tokens| Self::Params { tokens, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: (batch.elems() / u64::from(self.n)) as u32, ..Default::default() }
    }

    /// As of `int8.gated`.
    fn tolerance(&self, operand: &Operand) -> Tolerance {
        neighbours(operand)
    }
}
