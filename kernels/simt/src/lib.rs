//! The CUDA sources of a program, compiled for the host and executed under a checker. See `README.md`.
//!
//! A program's test calls [`check`]. Nothing that ships depends on this package; g++ is called when kernels are
//! checked, not when this is built.

#![deny(missing_docs)]

mod branches;
mod check;
mod compile;
mod cost;
mod count;
mod error;
mod examples;
mod execute;
mod inlined;
mod launch;
mod program;
mod report;
mod scratch;
pub mod suite;
mod translate;

pub use check::{CheckFault, CheckOutcome, check_all, check_source};
pub use compile::Simt;
pub use cost::{Cost, Count, Traffic};
pub use count::{Counted, count};
pub use error::CompileError;
pub use examples::{CheckError, Checked, check};
pub use execute::execute;
pub use launch::Operand;
pub use program::Program;
pub use report::Report;
