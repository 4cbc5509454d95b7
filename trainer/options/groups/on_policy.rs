//! Options of a student that learns from what it writes itself.

use clap::Args;
use precast_plan::Objective;
use serde::Serialize;

use super::values::share;
use super::{Change, CompletionOptions, Division, ShapeOptions};
use crate::options::UsageError;
use crate::options::usage::first_asked;

/// Options of sequences that the student writes, as they are asked for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "On-policy")]
pub struct OnPolicyOptions {
    /// Train on completions that the student writes: this share of the sequences, all if no number is given; the rest
    /// are the data's own. Then --alpha, --temperature and --beta are 1 where nothing is said
    #[arg(long, value_name = "L", num_args = 0..=1, default_missing_value = "1", value_parser = share)]
    pub on_policy: Option<f32>,
    #[command(flatten)]
    pub completions: CompletionOptions,
    /// Steps between those whose completions are written to samples.jsonl, with their token ids; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, add = Change::AtResume)]
    pub samples_every: u64,
}

/// Training on completions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnPolicy {
    /// Share of the sequences that the student completes.
    #[serde(rename = "on_policy")]
    pub share: f32,
    /// Completions of each prompt in a step.
    pub group_size: u32,
    /// Steps between those whose completions are kept; 0 for none.
    pub samples_every: u64,
}

impl OnPolicy {
    /// True if the completions of a step, counted from 1, are kept.
    pub fn keeps_samples(&self, step: u64) -> bool {
        self.samples_every > 0 && step.is_multiple_of(self.samples_every)
    }
}

impl OnPolicyOptions {
    /// Returns the first option that is asked for of steps on completions, besides that which asks for these.
    pub(crate) fn first_of_steps(&self) -> Option<String> {
        let (group_size, samples_every) = (&self.completions.group_size, &(self.samples_every > 0));
        first_asked!(group_size, samples_every)
    }

    /// Resolves what is of training; none of a run that trains on data alone.
    ///
    /// # Errors
    /// [`UsageError`] for options that do not go together.
    pub(crate) fn resolve(
        &self,
        objective: Objective,
        ShapeOptions { batch_size, .. }: ShapeOptions,
        division: Division,
    ) -> Result<Option<OnPolicy>, UsageError> {
        let Some(share) = self.on_policy else { return Ok(None) };
        let refuse = |reason: String| Err(UsageError(reason));
        let Objective::Distill { alpha, .. } = objective else {
            return refuse(
                "--on-policy requires a teacher, which scores what the student writes: give --teacher and --student"
                    .into(),
            );
        };
        if alpha < 1.0 {
            return refuse(format!(
                "--on-policy with --alpha {alpha}: the rest of the loss would have the student learn its own tokens \
                as if they were \
                 data. Leave --alpha out, or give 1"
            ));
        }
        let (group_size, sequences) =
            (self.completions.group_size.unwrap_or(1), u64::from(batch_size) * u64::from(division.grad_accum));
        if !sequences.is_multiple_of(group_size.into()) {
            return refuse(format!(
                "--group-size {group_size} does not divide the {sequences} sequences of a step (--batch-size times \
                --grad-accum)"
            ));
        }
        if self.completions.sampling.sampling_temperature == Some(0.0) {
            return refuse(
                "--sampling-temperature 0 takes the likeliest token: all completions of a prompt would be one. Give \
                a number above 0"
                    .into(),
            );
        }
        Ok(Some(OnPolicy { share, group_size, samples_every: self.samples_every }))
    }
}
