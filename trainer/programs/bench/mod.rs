//! `precast bench`: what a step and each of its kernels take on a device.
//!
//! The plan is that of a run, with a phase more for each group of launches that do the same work. Nothing else differs:
//! the same kernels, memory, graphs and seal.

mod compare;
mod generation;
pub(crate) mod groups;
mod kernel_record;
mod kernels;
mod open;
mod random_steps;
mod record;
mod rollouts;
mod rows;
mod step;
mod sweep;
#[cfg(test)]
mod tests;
mod timing;
mod tune;

pub use generation::GenerationBench;
pub(crate) use generation::bench_generation;
pub use kernels::{KernelBench, missing, open_kernels, time_kernels};
pub use open::Reader;
pub(crate) use record::{Measured, Record};
pub(crate) use rollouts::bench_rollouts;
pub(crate) use step::bench;
pub use sweep::{Sweep, sweep};
pub(crate) use timing::median;
pub use tune::tune;
