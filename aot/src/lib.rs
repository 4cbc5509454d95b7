//! BEFORE the run: turns models into keys, keys into cubins, cubins into a bundle.
//!
//! The only crate that can compile device code. The trainer does not depend on it; its build script does.

pub mod budget;
pub mod build;
pub mod cache;
pub mod compile;
mod frames;
pub mod home;
pub mod kernels;
pub mod lock;
pub mod models;
pub mod nvrtc;
pub mod prebuilt;
pub mod publish;
pub mod toolchain;

pub use build::{BuildError, Built, Request, build};
pub use frames::{Framed, frames};
pub use models::{Model, ModelError};
pub use nvrtc::{Nvrtc, NvrtcError};
pub use precast_kernels::Arch;
