//! Where NVRTC comes from, and the pinned wheels it can be installed from.

mod locate;
pub mod pins;
mod provide;
pub mod wheels;

pub use locate::{LocateError, is_named, nvrtc};
pub use provide::{OFFLINE, ProvideError, provide};
