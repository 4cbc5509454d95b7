//! Where NVRTC comes from, and the pinned wheels it can be installed from.

mod locate;
pub mod pins;
#[cfg(feature = "cli")]
pub mod wheels;

pub use locate::{LocateError, nvrtc};
