//! Options of a student that learns from what it writes itself.

use clap::{Args, value_parser};
use precast_plan::{Gemm, Objective};
use serde::Serialize;

use super::values::share;
use super::{Change, Completions, Division, SamplingOptions, ShapeOptions};
use crate::options::{SlotChoice, UsageError};

/// Tokens of a completion where nothing is said.
const MOST_TOKENS: u32 = 512;

/// Options of sequences that the student writes, as they are asked for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "On-policy")]
pub struct OnPolicyOptions {
    /// Train on completions that the student writes: this share of the sequences, all if no number is given; the rest are the data's
    /// own. Then --alpha, --temperature and --beta are 1 where nothing is said
    #[arg(long, value_name = "L", num_args = 0..=1, default_missing_value = "1", value_parser = share)]
    pub on_policy: Option<f32>,
    /// Tokens of a completion, at most. Without --on-policy, options of completions are of prompts in --eval-data [default: 512]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub max_tokens: Option<u32>,
    /// Completions of each prompt in a step [default: 1]
    #[arg(long, value_name = "G", value_parser = value_parser!(u32).range(1..=1 << 16))]
    pub group_size: Option<u32>,
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Make a prompt of the first N tokens of each sequence of text and of .bin files
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub prompt_tokens: Option<u32>,
    /// Completions that are written at a time: a number, or auto for as many as there is room for, up to those of a step if it
    /// trains on them; results do not depend on it [default: auto]
    #[arg(long, value_name = "N|auto", add = Change::AtResume)]
    pub rollout_slots: Option<SlotChoice>,
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
                "--on-policy is of a student whose teacher scores what it writes: give --teacher and --student".into(),
            );
        };
        if alpha < 1.0 {
            return refuse(format!(
                "--on-policy with --alpha {alpha}: the rest of the loss would have the student learn its own tokens as if they were \
                 data. Leave --alpha out, or give 1"
            ));
        }
        let (group_size, sequences) =
            (self.group_size.unwrap_or(1), u64::from(batch_size) * u64::from(division.grad_accum));
        if !sequences.is_multiple_of(group_size.into()) {
            return refuse(format!(
                "--group-size {group_size} does not divide the {sequences} sequences of a step (--batch-size times --grad-accum)"
            ));
        }
        if self.sampling.sampling_temperature == Some(0.0) {
            return refuse(
                "--sampling-temperature 0 takes the likeliest token: all completions of a prompt would be one. Give a number above 0"
                    .into(),
            );
        }
        Ok(Some(OnPolicy { share, group_size, samples_every: self.samples_every }))
    }

    /// Resolves how the student writes, of a run in which it does.
    ///
    /// # Errors
    /// [`UsageError`] for options that do not go together.
    pub(crate) fn completions(&self, gemm: Gemm, seq_len: u32, seed: u64) -> Result<Completions, UsageError> {
        if gemm == Gemm::Cublas {
            return Err(UsageError(
                "completions with --gemm cublas: a row of cuBLASLt's GEMMs has other bits where there are other rows beside it, so the \
                 tokens that are scored would not be those that were drawn. Leave --gemm out"
                    .into(),
            ));
        }
        let max_tokens = self.max_tokens.unwrap_or(MOST_TOKENS);
        if max_tokens >= seq_len {
            return Err(UsageError(format!(
                "--max-tokens {max_tokens} leaves no room for a prompt in --seq-len {seq_len}: give fewer, or a longer --seq-len"
            )));
        }
        Ok(Completions {
            max_tokens,
            sampling: self.sampling.resolve(1.0, seed),
            prompt_tokens: self.prompt_tokens,
            rollout_slots: self.rollout_slots.unwrap_or(SlotChoice::Auto),
        })
    }
}
