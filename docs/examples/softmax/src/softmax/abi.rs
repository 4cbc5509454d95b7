//! Parameter blocks and kernels, of the C headers of `src/softmax`.
//!
//! Not edited by hand: `precast-aot abi src/softmax --out src/softmax/abi.rs` regenerates it.
// Headers: 770506497b5f5a0b740e30c277187de688bfbc2ebfe2c1452d788c1b0794cc6b
// Body: 2f17d709b6ec56515ea7b0a87b673ea8424fc32871bac7a93a0d68508603f2e1
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

pub use precast_core::abi::{address, tensor_map};
use precast_core::{Block, Content, Dtype, Format, Scalar, operations, parameters};

parameters! {
    /// Parameter block of `softmax`.
    pub struct softmax_params, SoftmaxArgs {
        /// `[rows, columns]` x, read, rows(columns)
        operand x(Read => self.x, rows * columns, Content::Rows(self.columns));
        /// `[rows, columns]` x, write
        operand y(Write => self.x, rows * columns);
        /// at least 1
        scalar rows(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, columns = self.columns] {}
    /// Turns each row into probabilities.
    kernel Softmax = "softmax" { columns: u32, x: Dtype };
}

operations! {
    Softmax
}
