//! Parameter blocks and kernels, of the C headers of `src/saxpy`.
//!
//! Not edited by hand: `precast-aot abi src/saxpy --out src/saxpy/abi.rs` regenerates it.
// Headers: 35aacc0d94ec3d2806ee1d7eadcbf3fc3abc5563ea4caa85f6a6f53ebfa0ca86
// Body: 32455d1b851ee3769112987762ad36ce95bb050e23dfcc272ee20d96d577ee9b
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

pub use precast_core::abi::{address, tensor_map};
use precast_core::{Block, Content, Dtype, Format, Scalar, operations, parameters};

parameters! {
    /// Parameter block of `saxpy`.
    pub struct saxpy_params, SaxpyArgs {
        /// `[n]` x, read
        operand x(Read => self.x, n);
        /// `[n]` x, update
        operand y(ReadWrite => self.x, n);
        /// elements
        scalar n(u32);
        /// factor of x
        scalar a(f32);
    }
    |self, p| [n = p.n] {}
    /// Adds a multiple of one vector to another.
    kernel Saxpy = "saxpy" { x: Dtype };
}

operations! {
    Saxpy
}
