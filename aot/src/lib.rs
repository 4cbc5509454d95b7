//! BEFORE the run: turns the keys of a program's kernels into cubins, and cubins into a bundle.
//!
//! The only crate that can compile device code. Programs do not depend on it; their build scripts do.

#![deny(missing_docs)]

pub mod abi;
mod assembler;
pub mod budget;
pub mod build;
pub mod cache;
pub mod compile;
mod embed;
mod frames;
pub mod home;
pub mod lock;
pub mod nvrtc;
mod plain;
pub mod prebuilt;
pub mod publish;
pub mod toolchain;

pub use assembler::{Assembler, AssemblerError};
pub use build::{BuildError, Built, Request, build};
pub use embed::{Embed, EmbedError, embed, features, instruct, variable};
pub use frames::frames;
pub use nvrtc::{Nvrtc, NvrtcError};
pub use plain::PlainError;
pub use precast_core::Arch;
