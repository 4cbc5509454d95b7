//! The models that the trainer is built for, and the kernels that runs over them launch.

pub mod kernels;
mod model;
mod selection;

pub use model::{Model, ModelError, SHARED_LOCK};
pub use selection::{LOCK, Selection};
