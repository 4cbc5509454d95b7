//! A run on disk: the directory that it owns, what it is, its checkpoints, and how it stops.

pub mod certificate;
pub mod checkpoint;
pub mod covered;
pub mod disk_space;
pub mod error;
pub mod failure;
pub mod gpu;
pub mod growth;
pub mod guard;
pub mod identity;
pub mod log;
pub mod metrics;
pub mod out;
pub mod outcome;
pub mod perplexity;
pub mod rank_end;
pub mod record;
pub mod report;
pub mod report_file;
pub mod rollout;
pub mod sample;
pub mod samples_file;
pub mod saved_tensor;
pub mod signing;
pub mod step;
pub mod still;
pub mod tensorboard;
pub mod tokens;

#[cfg(test)]
pub(crate) mod tests;
