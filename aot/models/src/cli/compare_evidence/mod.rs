//! `precast-aot compare-evidence`

mod command;
mod comparison;
mod kernels;
mod verdict;

pub use command::{Arguments, read, run};
