//! Plans: buffers in one arena, and phases of nodes with their dependencies.

mod arena;
mod buffer;
mod builder;
mod dependencies;
mod memory;
mod node;
mod phases;
mod reselect;
mod roofline;

pub use buffer::{Buffer, BufferId, Category, Lifetime, Tensor};
pub use builder::Builder;
pub use memory::{MemoryRow, MemoryTable};
pub use node::{Build, Cublas, Exchange, Executor, Launch, Node, Touch, Work};
pub use phases::{Phase, Plan, keys};
