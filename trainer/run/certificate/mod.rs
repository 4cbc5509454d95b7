//! Cost of a teacher that is not exact: the distance of its predictions from the exact one's, in nats.

mod file;
mod measured;

pub use file::{Certificate, Subject, hidden_kernels_sha256, measure};
pub use measured::{Measured, Tally};
