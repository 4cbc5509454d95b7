//! `precast distill` and `precast train`: the run from the first file to the last.

mod begin;
mod certify;
mod command;
mod digests;
mod end;
mod fault;
mod gradients;
mod held_out;
mod hung;
mod inputs;
mod mode;
mod on_policy;
mod open;
mod progress;
mod ready;
mod result;
mod resume;
mod rollout_samples;
mod rollout_steps;
mod running;
mod samples;
mod steps;
mod teacher_score;
mod wait;

pub use command::{check, distill};
pub(crate) use inputs::{has_teacher_prompts, read, read_data};
pub use mode::Mode;
pub(crate) use rollout_steps::{EnqueuedStep, RolloutStep};
