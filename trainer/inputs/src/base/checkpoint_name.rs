//! Names of a run's checkpoints, in its directory and in messages.

pub const PREFIX: &str = "checkpoint-";

/// The name of the checkpoint after a step.
pub fn name(step: u64) -> String {
    format!("{PREFIX}{step}")
}
