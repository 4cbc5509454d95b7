//! `cargo xtask simt` without a name: the CUDA sources of every key and variant of every model, executed on the CPU.
//! With one, it is the program of `xtask/simt` alone (`xtask/start`).

mod check;
mod passed;
mod report;

pub use check::{representative, simt};
pub use report::report;
