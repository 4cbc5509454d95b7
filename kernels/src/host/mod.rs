//! Building blocks of host references: typed views of a launch's buffers, a matrix multiplication, `exp`.

mod buffer;
mod math;
mod matmul;
mod views;

pub use buffer::Buffer;
pub use math::{exp, sigmoid, vectorized};
pub use matmul::{Matrix, Output, Threads, matmul};
pub use views::{Store, Views, round_to};
