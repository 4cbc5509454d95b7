//! Reads bundles: a bounded parse, then equality with the canonical encoding.

mod encode;
mod error;
mod file;
mod read;
mod verify;

pub use encode::{encode, parts};
pub use error::BundleError;
pub use file::BundleFile;
pub use read::{Bundle, Module};
