//! WHAT can be launched: typed keys, parameter blocks, CUDA sources and host references.
//!
//! Each kernel family has a folder: its C header, CUDA sources and host reference. The header declares a kernel, and
//! `abi` is generated from it: key, parameter block, and operands of a launch ([`Kernel`]). Its builds ([`Build`]) and
//! its required results ([`Reference`]) stand beside it; enumeration, compilation, simulation, checks and benchmarks
//! all use these, through [`KERNELS`]. This crate does no I/O and calls no driver.

pub mod abi;
mod gamma;
mod gate;
pub mod host;
mod moments;
mod out;
pub mod rows;

pub mod adamw;
pub mod add;
pub mod attention;
pub mod bits;
pub mod cast;
pub mod column_sum;
pub mod conv;
pub mod delta_rule;
pub mod dequant;
pub mod embedding;
pub mod fake_quant;
pub mod fill;
pub mod gated_norm;
pub mod gemm;
pub mod grad_distance;
pub mod grad_norm;
pub mod head;
pub mod int8;
pub mod kv;
pub mod lora;
pub mod moe;
pub mod output_gate;
pub mod post_norm;
pub mod qk_norm;
pub mod rmsnorm;
pub mod rope;
pub mod sample;
pub mod scale;
pub mod swiglu;

pub use gamma::Gamma;
pub use gate::Gate;
pub use moments::Moments;
pub use out::Out;
use precast_core::shell::quoted;
use precast_core::source::Common;
pub use precast_core::{
    Access, Addend, AnyKernel, Arch, Batch, BlasGemm, Block, Build, BuildKeys, Content, Digest, Dtype, Fixed, Flag,
    Format, Geometry, Hasher, Kernel, Key, KeyError, KeyVariant, NotADigest, OPTIONS, Op, Operand, Reference,
    Registered, Registry, Source, TEGRA, TensorMap, Threads, Tolerance, Variant, arch, blas, bytes, card, check,
    digest, dtype, erased, fields, format, kernel, key, operand, positions, reference, sequences, tensor_map, tuned,
    variant,
};

/// Headers that kernels of these families share, beside those of `precast-core`.
static COMMON: Common = Common::new(&[
    ("blocks.cuh", include_str!("../cuda/blocks.cuh")),
    ("gamma.cuh", include_str!("../cuda/gamma.cuh")),
    ("gate.cuh", include_str!("../cuda/gate.cuh")),
    ("kept.h", include_str!("kept.h")),
    ("lanes.cuh", include_str!("../cuda/lanes.cuh")),
    ("quantize.cuh", include_str!("../cuda/quantize.cuh")),
    ("sequence.cuh", include_str!("../cuda/sequence.cuh")),
    ("step.h", include_str!("step.h")),
    ("tiles.h", include_str!("tiles.h")),
])
.in_folder("kernels/src");

/// Declares a CUDA source with the headers that these families share.
macro_rules! source {
    ($($source:tt)*) => { precast_core::source!(@ &$crate::COMMON; $($source)*) };
}
use source;

/// Says that a kernel has one variant, on every architecture.
macro_rules! one_variant {
    ($type:ident { $($fields:tt)* }) => {
        type Variant = $type;

        fn variants(&self, _arch: $crate::Arch) -> Vec<$type> {
            vec![$type { $($fields)* }]
        }
    };
}
use one_variant;

/// Every kernel of the trainer, with the launches measured on an H200.
pub static KERNELS: Registry = Registry::with("precast", abi::OPS, tuned_launches, rebuild);

fn tuned_launches() -> tuned::Table {
    include_str!("tuned.txt").parse().unwrap_or_else(|error| panic!("tuned.txt: {error}"))
}

/// Returns the command that builds the kernels of models, each a name, a directory or a configuration.
pub fn rebuild(models: &[String], archs: &[Arch]) -> String {
    let models: String = models.iter().map(|model| format!(" --model {}", quoted(model))).collect();
    let archs: Vec<&str> = archs.iter().map(|arch| arch.argument()).collect();
    let archs = if archs.is_empty() { String::new() } else { format!(" --arch {}", archs.join(",")) };
    format!("precast-aot build{models}{archs} --out run.bundle")
}

// Checks draw these for ids and slots that are none.
const _: () = assert!(abi::MASKED_TOKEN == u32::MAX && abi::IDLE_SLOT == u32::MAX);
