//! Kernels as values, and plans that launch them, for any program: no kernel, no model and no driver is in here.
//!
//! A program declares each kernel once, in a C header, from which `precast-abi` writes its key, parameter block and
//! operands ([`Kernel`]); it adds builds ([`Build`]) and required results ([`Reference`]), and lists all of them in a
//! [`Registry`]. The compiler, the runtime, the self-test and the checker take that value. A [`plan::Builder`] makes a
//! [`Plan`] of launches: its arena and its dependencies follow from the operands.

#![deny(missing_docs)]

#[cfg(test)]
extern crate self as precast_core;

pub mod abi;
pub mod arch;
pub mod blas;
pub mod build;
mod build_keys;
pub mod card;
pub mod check;
mod chip_memory;
pub mod chips;
pub mod digest;
pub mod dtype;
pub mod erased;
pub mod fields;
pub mod format;
pub mod geometry;
pub mod host;
mod human;
pub mod kernel;
pub mod key;
pub mod operand;
mod parameters;
pub mod plain;
mod plain_reference;
pub mod plan;
pub mod ptx;
pub mod reference;
pub mod registry;
mod sequences;
pub mod shell;
pub mod source;
pub mod tensor_map;
pub mod tuned;
mod undeclared;
pub mod variant;

/// Prints a type by what it says where its debug form is asked for: a program or a test whose `main` returns it ends
/// with that.
#[macro_export]
macro_rules! debug_is_display {
    ($type:ty) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Version of this package, which a bundle and the program that reads it share.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub use arch::{Arch, TEGRA};
pub use blas::{Addend, BlasGemm};
pub use build::Build;
pub use build_keys::BuildKeys;
pub use bytemuck;
pub use chip_memory::ChipMemory;
pub use digest::{Digest, Hasher, NotADigest};
pub use dtype::Dtype;
pub use erased::{AnyKernel, Registered, bytes};
pub use fields::Flag;
pub use format::{Block, Format};
pub use geometry::Geometry;
pub use human::human_bytes;
pub use kernel::Kernel;
pub use key::{Key, KeyVariant};
pub use operand::{Access, Content, Operand, Scalar};
pub use plain::{LaunchPlain, Parameter, PlainKernel, PlainUnit};
pub use plain_reference::ReferenceError;
pub use plan::Plan;
pub use reference::{Batch, Reference, Tolerance};
pub use registry::{Kernels, KeyError, Op, Rebuild, Registry};
pub use sequences::{positions, sequences};
pub use source::{OPTIONS, Source};
pub use tensor_map::TensorMap;
pub use variant::{Fixed, Threads, Variant};
