//! Kernels as their C headers declare them, in Rust: parameter blocks, arguments, keys and operands.
//!
//! A header says everything once. Above a parameter block stands a line for each kernel that takes it; behind each
//! address its shape, dtype, access and, where they matter, condition and content of checks; behind each scalar its
//! unit. A struct of scalars that is an operand says so in a line `operand: dtype`, and its fields begin with what
//! checks draw: `uniform(0.1, 1.0)`, `below(2)`, or a number.
//!
//! ```c
//! /// cast { from: Dtype, to: Dtype }: Casts elements, rounding to nearest even.
//! typedef struct cast_params {
//!     address x; ///< [n] from, read
//!     address y; ///< [n] to, write
//!     uint64_t n;
//! } cast_params;
//! ```
//!
//! Kernels of CUDA files that know nothing of this project are read as they are, by [`write_plain`].
//!
//! The generated file is committed, so that a plain build needs no libclang, and tells in its head what it was made of:
//! [`precast_system::generated::check`] compares. This package depends on nothing that is made of it: where a header is
//! wrong and the kernels do not compile, it still does.

#![deny(missing_docs)]

mod declaration;
mod emit;
mod expression;
mod generate;
mod headers;
pub mod libclang;
mod plain;

pub use generate::{again, generate, put, write};
pub use plain::write_plain;
