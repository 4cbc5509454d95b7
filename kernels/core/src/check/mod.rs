//! Checks launches: fresh random inputs, poisoned outputs, and the distance from the host reference.

mod case;
mod distance;
mod draw;

pub use case::Case;
pub use distance::{Distance, Mismatch, OutputFault, POISON, floats};
