//! `precast-aot compare-evidence`

mod command;
mod comparison;
mod golden;
mod kernels;
mod launches;
mod verdict;

pub use command::{Arguments, read, run};
