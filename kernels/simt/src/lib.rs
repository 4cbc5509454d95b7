//! The CUDA sources that ship, compiled for the host and executed under a checker. See `README.md`.
//!
//! Nothing that ships depends on this package; g++ is called when kernels are checked, not when this is built.

mod check;
mod compile;
mod cost;
mod count;
mod error;
mod execute;
mod launch;
mod program;
mod report;
pub mod suite;
mod translate;

pub use check::{CheckFault, CheckOutcome, check_all, check_source};
pub use compile::Simt;
pub use cost::{Cost, Count, Traffic};
pub use count::{Counted, count};
pub use error::CompileError;
pub use execute::execute;
pub use launch::Operand;
pub use program::Program;
pub use report::Report;
