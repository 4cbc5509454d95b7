//! Parameter blocks and kernels, of the C headers of `src/vectors`.
//!
//! Not edited by hand: `precast-aot abi src/vectors --out src/vectors/abi.rs` regenerates it.
// Headers: cfb51eadd52c5ecec6221c2e530503f630dd741943021074b52831711895e2ea
// Body: 63aa1c5d3a97c0e53ca30e47466272a08a0eb92ef2c6f897ff29dd7e6319bf91
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
        /// what C leaves at the end of the struct
        internal reserved(u32);
    }
    |self, p| [n = p.n] {}
    /// Sums a vector, 8 blocks of 128 threads to a partial sum each.
    kernel Sum = "sum" {};
}

operations! {
    Saxpy, Sum
}
