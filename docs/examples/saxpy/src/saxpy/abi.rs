//! Parameter blocks and kernels, of the C headers of `src/saxpy`.
//!
//! Not edited by hand: `precast-aot abi src/saxpy --out src/saxpy/abi.rs` regenerates it.
// Headers: 35aacc0d94ec3d2806ee1d7eadcbf3fc3abc5563ea4caa85f6a6f53ebfa0ca86
// Body: 61cbb8903f1b21c8b45ebc39e61a4876d97b844af3cabca04e3cf034dd9faed4
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

use std::mem::offset_of;

pub use precast_core::abi::{address, tensor_map};
use precast_core::bytemuck::{Pod, Zeroable};
use precast_core::{Block, Content, Dtype, Format, Kernel, Op, Operand, Scalar, arguments, key, operand};

/// Parameter block of `saxpy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct saxpy_params {
    /// `[n]` x, read
    pub x: address,
    /// `[n]` x, update
    pub y: address,
    /// elements
    pub n: u32,
    /// factor of x
    pub a: f32,
}

arguments! {
    SaxpyArgs of saxpy_params {
        operands { x, y }
        optional { }
        scalars { n: u32, a: f32 }
    }
}

key! {
    /// Adds a multiple of one vector to another.
    pub struct Saxpy = "saxpy" { x: Dtype }
}

impl Kernel for Saxpy {
    type Params = saxpy_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = u64::from(p.n);
        let operands =
            [Some(operand!(Read Self::Params, x: self.x, n)), Some(operand!(ReadWrite Self::Params, y: self.x, n))];
        operands.into_iter().flatten().collect()
    }
}

/// Every kernel, in the order of operations.
pub const OPS: &[Op] = &[Op::of::<Saxpy>()];
