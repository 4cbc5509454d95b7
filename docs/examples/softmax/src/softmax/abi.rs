//! Parameter blocks and kernels, of the C headers of `src/softmax`.
//!
//! Not edited by hand: `precast-aot abi src/softmax --out src/softmax/abi.rs` regenerates it.
// Headers: 770506497b5f5a0b740e30c277187de688bfbc2ebfe2c1452d788c1b0794cc6b
// Body: 23b3eb159b596bbad2087ebadb460fb742cea06f353fa596acd0d8ac96930ace
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

use std::mem::offset_of;

pub use precast_core::abi::{address, tensor_map};
use precast_core::bytemuck::{Pod, Zeroable};
use precast_core::{Block, Content, Dtype, Format, Kernel, Op, Operand, Scalar, arguments, key, operand};

/// Parameter block of `softmax`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct softmax_params {
    /// `[rows, columns]` x, read, rows(columns)
    pub x: address,
    /// `[rows, columns]` x, write
    pub y: address,
    /// at least 1
    pub rows: u32,
    pub reserved: u32,
}

arguments! {
    SoftmaxArgs of softmax_params {
        operands { x, y }
        optional { }
        scalars { rows: u32 }
    }
}

key! {
    /// Turns each row into probabilities.
    pub struct Softmax = "softmax" { columns: u32, x: Dtype }
}

impl Kernel for Softmax {
    type Params = softmax_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let columns = u64::from(self.columns);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, rows * columns).with(Content::Rows(self.columns))),
            Some(operand!(Write Self::Params, y: self.x, rows * columns)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Every kernel, in the order of operations.
pub const OPS: &[Op] = &[Op::of::<Softmax>()];
