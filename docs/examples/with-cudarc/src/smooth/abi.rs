//! Parameter blocks and kernels, of the C headers of `src/smooth`.
//!
//! Not edited by hand: `precast-aot abi src/smooth --out src/smooth/abi.rs` regenerates it.
// Headers: 1bf4c82cd2b8036ea562ccca7536722feda07f218b6e0cd9f00d5f2253e2f839
// Body: 9c6e22e186f69714cd19e0867ad5870f0e0e9780a257106ea44c4138d54b2bbb
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

pub use precast_core::abi::{address, tensor_map};
use precast_core::{Block, Content, Dtype, Format, Scalar, operations, parameters};

parameters! {
    /// Parameter block of `smooth`.
    pub struct smooth_params, SmoothArgs {
        /// `[n]` x, read
        operand x(Read => self.x, n);
        /// `[n]` x, write
        operand y(Write => self.x, n);
        /// elements
        scalar n(u64);
    }
    |self, p| [n = p.n] {}
    /// Averages each element with its neighbors, 1 : 2 : 1.
    kernel Smooth = "smooth" { x: Dtype };
}

operations! {
    Smooth
}
