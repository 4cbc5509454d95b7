//! Parameter blocks and kernels, of the C headers of `src/smooth`.
//!
//! Not edited by hand: `precast-aot abi src/smooth --out src/smooth/abi.rs` regenerates it.
// Headers: 1bf4c82cd2b8036ea562ccca7536722feda07f218b6e0cd9f00d5f2253e2f839
// Body: a26fa883197d9c6f496d96f9ca9a1b53798bc13b7f027c11a440918879f4f9cc
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

use std::mem::offset_of;

pub use precast_core::abi::{address, tensor_map};
use precast_core::bytemuck::{Pod, Zeroable};
use precast_core::{Block, Content, Dtype, Format, Kernel, Op, Operand, Scalar, arguments, key, operand};

/// Parameter block of `smooth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct smooth_params {
    /// `[n]` x, read
    pub x: address,
    /// `[n]` x, write
    pub y: address,
    /// elements
    pub n: u64,
}

arguments! {
    SmoothArgs of smooth_params {
        operands { x, y }
        optional { }
        scalars { n: u64 }
    }
}

key! {
    /// Averages each element with its neighbors, 1 : 2 : 1.
    pub struct Smooth = "smooth" { x: Dtype }
}

impl Kernel for Smooth {
    type Params = smooth_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let operands =
            [Some(operand!(Read Self::Params, x: self.x, n)), Some(operand!(Write Self::Params, y: self.x, n))];
        operands.into_iter().flatten().collect()
    }
}

/// Every kernel, in the order of operations.
pub const OPS: &[Op] = &[Op::of::<Smooth>()];
