//! Finds and opens NVIDIA's cuBLASLt and checks its version, if a run requests it. There is no fallback to it or from
//! it.

pub(crate) mod ffi;
mod library;

pub use library::{Cublas, CublasError, KNOWN_VERSIONS, Version};
