//! WHAT can be launched: typed keys, parameter blocks, CUDA sources and host references.
//!
//! Each kernel family has a folder: its C header, CUDA sources and host reference. The header declares a kernel, and
//! `abi` is generated from it: key, parameter block, and operands of a launch ([`Kernel`]). Its builds ([`Build`]) and
//! its required results ([`Reference`]) stand beside it; enumeration, compilation, simulation, checks and benchmarks
//! all use these, through [`registry`]. This crate does no I/O and calls no driver.

pub mod abi;
pub mod arch;
mod arguments;
pub mod blas;
pub mod build;
pub mod check;
pub mod digest;
pub mod dtype;
pub mod erased;
pub mod fields;
pub mod format;
pub mod host;
pub mod kernel;
pub mod key;
pub mod operand;
pub mod out;
mod reach;
pub mod reference;
pub mod registry;
pub mod rows;
pub mod source;
pub mod tensor_map;
pub mod tuned;
pub mod variant;
mod words;

pub mod adamw;
pub mod add;
pub mod attention;
pub mod bits;
pub mod card;
pub mod cast;
pub mod column_sum;
pub mod dequant;
pub mod embedding;
pub mod fill;
pub mod gemm;
pub mod grad_distance;
pub mod grad_norm;
pub mod head;
pub mod int8;
pub mod kv;
pub mod lora;
pub mod qk_norm;
pub mod rmsnorm;
pub mod rope;
pub mod sample;
pub mod swiglu;

pub use arch::{Arch, TEGRA};
pub use blas::{Addend, BlasGemm};
pub use build::{Build, Geometry};
pub use digest::{Digest, Hasher, NotADigest};
pub use dtype::Dtype;
pub use erased::{AnyKernel, Registered, bytes};
pub use format::{Block, Format};
pub use kernel::Kernel;
pub use key::{Key, KeyVariant};
pub use operand::{Access, Content, Operand};
pub use out::Out;
pub use reference::{Batch, Reference, Tolerance};
pub use registry::{KeyError, OPS, examples};
pub use source::{OPTIONS, Source};
pub use tensor_map::TensorMap;
pub use variant::{Fixed, Threads, Variant};
