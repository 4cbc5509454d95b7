//! Opening a device.

pub mod bundle;
pub mod decoding;
mod error;
pub mod fit;
pub mod frozen;
pub mod host_memory;
pub mod memory;
mod open;
pub mod remedy;
pub mod run_heading;
pub mod run_models;
pub mod seal;
pub mod session;
pub mod shapes;
#[cfg(test)]
pub(crate) mod tests;
pub mod training;
pub mod tuning;
pub mod unfit;
pub(crate) mod upload;
pub mod watch;

pub use error::DeviceError;
pub use open::{cublas, open, open_for, open_own, open_rank, open_with, rows};
