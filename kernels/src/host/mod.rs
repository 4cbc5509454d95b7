//! Building blocks of host references: typed views of a launch's buffers, a matrix multiplication, `exp`.

mod math;
mod matmul;

pub use math::{exp, sigmoid, vectorized};
pub use matmul::{Matrix, Output, Threads, matmul};
pub use precast_core::host::{Buffer, Store, Views, round_to};
