//! Low-rank adapters, as PEFT has them: `W x + scale B A x`, in and out of its files.

mod choice;
mod config;
mod initial;
mod layout;
mod opened;
mod pattern;
mod placed;
#[cfg(test)]
mod tests;
mod write;

pub use choice::AdapterChoice;
pub use layout::{Adapted, Layout, Lora, MOST_RANK, Projection, Target, Targets};
pub use opened::Adapter;
pub use placed::{extent, gathered};
pub use write::fill_adapter;
