//! Parameter blocks and kernels, of the C headers of `src/vectors`.
//!
//! Not edited by hand: `precast-aot abi src/vectors --out src/vectors/abi.rs` regenerates it.
// Headers: e51b370b46aa597fdbe13af2481972dfb10641e70db979b816d664d745c33320
// Body: c0cdadafb71aff6fb970a141bbfea4b705860d277a21bad5c5622cfb0b16fa62
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(clippy::nonminimal_bool, dead_code, missing_docs, non_camel_case_types, unused_imports)]

pub use precast_core::abi::{address, tensor_map};
use precast_core::{Block, Content, Dtype, Format, Scalar, operations, parameters};

parameters! {
    /// Parameter block of `saxpy`.
    pub struct saxpy_params, SaxpyArgs {
        /// `[n]` f32, read
        operand x(Read => Dtype::F32, n);
        /// `[n]` f32, update
        operand y(ReadWrite => Dtype::F32, n);
        /// factor of x
        scalar a(f32);
        /// elements
        scalar n(u32);
    }
    |self, p| [n = p.n] {}
    /// Adds a multiple of one vector to another.
    kernel Saxpy = "saxpy" {};
}

parameters! {
    /// Parameter block of `sum`.
    pub struct sum_params, SumArgs {
        /// `[n]` f32, read
        operand x(Read => Dtype::F32, n);
        /// `[8]` f32, write
        operand partial(Write => Dtype::F32, 8);
        /// elements
        scalar n(u32);
        /// padding
        internal reserved(u32);
    }
    |self, p| [n = p.n] {}
    /// Sums a vector, 8 blocks of 128 threads to a partial sum each.
    kernel Sum = "sum" {};
}

operations! {
    Saxpy, Sum
}
