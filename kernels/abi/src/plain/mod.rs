//! Kernels as they are in CUDA files, in Rust: a function that launches each, and the structs that it takes by value.

mod emit;
mod read;
mod write;

pub use write::write_plain;
