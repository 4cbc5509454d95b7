//! Typed views of a launch's buffers, for host references.

mod buffer;
pub mod numbers;
mod views;

pub use buffer::Buffer;
pub use views::{Store, Views, round_to};
