//! WHY: data, checkpoints, the training loop, reports, and the `precast` program.

pub mod base;
pub mod cli;
pub mod device;
pub mod options;
pub mod programs;
pub mod ranks;
pub mod run;

pub use precast_inputs as inputs;
pub use run::failure::Failure;
