//! WHAT can be launched.
//!
//! One folder a kernel family: its keys, parameter blocks, launch geometry, CUDA source and host
//! reference. [`Kernel`] is implemented once per kernel; enumeration, compilation, simulation, checks
//! and benchmarks all come from it. This crate does no I/O and calls no driver.

pub mod abi;
pub mod arch;
pub mod check;
pub mod digest;
pub mod dtype;
pub mod format;
pub mod host;
pub mod kernel;
pub mod key;
pub mod source;
pub mod tensor_map;
pub mod tuned;
pub mod variant;

pub mod adamw;
pub mod attention;
pub mod cast;
pub mod column_sum;
pub mod embedding;
pub mod fill;
pub mod gemm;
pub mod grad_norm;
pub mod head;
pub mod rmsnorm;
pub mod rope;
pub mod swiglu;

pub use arch::Arch;
pub use digest::{Digest, Hasher, NotADigest, hex};
pub use dtype::Dtype;
pub use format::{Block, Format};
pub use kernel::{Access, AnyKernel, Content, Geometry, Kernel, Op, Operand, Tolerance};
pub use key::{Key, KeyError};
pub use source::{OPTIONS, Source};
pub use tensor_map::TensorMap;
pub use variant::Variant;

/// Every operation, alphabetical: the registry that key texts are read with.
pub static OPS: &[Op] = &[
    Op::of::<adamw::AdamwUpdate>(),
    Op::of::<attention::AttentionBwd>(),
    Op::of::<attention::AttentionDelta>(),
    Op::of::<attention::AttentionFwd>(),
    Op::of::<cast::Cast>(),
    Op::of::<column_sum::ColumnSumFinish>(),
    Op::of::<column_sum::ColumnSumPartial>(),
    Op::of::<embedding::EmbeddingBwd>(),
    Op::of::<embedding::EmbeddingFwd>(),
    Op::of::<fill::Fill>(),
    Op::of::<gemm::GemmDgrad>(),
    Op::of::<gemm::GemmFwd>(),
    Op::of::<gemm::GemmSwiglu>(),
    Op::of::<gemm::GemmWgrad>(),
    Op::of::<grad_norm::GradNormFinish>(),
    Op::of::<grad_norm::GradNormPartial>(),
    Op::of::<head::HeadDistill>(),
    Op::of::<head::HeadMetrics>(),
    Op::of::<head::HeadNll>(),
    Op::of::<rmsnorm::RmsnormBwd>(),
    Op::of::<rmsnorm::RmsnormFwd>(),
    Op::of::<rope::RopeBwd>(),
    Op::of::<rope::RopeFwd>(),
    Op::of::<swiglu::SwigluBwd>(),
    Op::of::<swiglu::SwigluFwd>(),
];

/// Finds an operation by name.
pub fn op(name: &str) -> Option<&'static Op> {
    OPS.iter().find(|op| op.name == name)
}
