//! Finds NVRTC, and installs it from pinned wheels.

mod beside;
mod locate;
pub mod pins;
mod provide;
pub mod wheels;

pub use beside::BesideError;
pub use locate::{LocateError, is_named, nvrtc};
pub use provide::{OFFLINE, ProvideError, assembler, provide};
