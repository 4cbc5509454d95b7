//! Options of a student that learns from what it writes itself.

use clap::{Args, value_parser};
use precast_plan::{Gemm, Objective, Sampling};
use serde::{Serialize, Serializer};

use super::values::share;
use super::{Change, Division, SamplingOptions, ShapeOptions};
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
    /// Tokens of a completion, at most [default: 512]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub max_tokens: Option<u32>,
    /// Completions of each prompt in a step [default: 1]
    #[arg(long, value_name = "G", value_parser = value_parser!(u32).range(1..=1 << 16))]
    pub group_size: Option<u32>,
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Make a prompt of the first N tokens of each sequence of text and of token ids without labels
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub prompt_tokens: Option<u32>,
    /// Completions that are written at a time: a number, or auto for as many as there is room for, up to those of a step; results do
    /// not depend on it [default: auto]
    #[arg(long, value_name = "N|auto", add = Change::AtResume)]
    pub rollout_slots: Option<SlotChoice>,
}

/// Completions that a run trains on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnPolicy {
    /// Share of the sequences that the student completes.
    #[serde(rename = "on_policy")]
    pub share: f32,
    /// Tokens of a completion, at most.
    pub max_tokens: u32,
    /// Completions of each prompt in a step.
    pub group_size: u32,
    #[serde(flatten, serialize_with = "draws")]
    pub sampling: Sampling,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u32>,
    pub rollout_slots: SlotChoice,
}

/// Names what draws depend on besides the seed, which is the run's.
fn draws<S: Serializer>(sampling: &Sampling, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Draws {
        sampling_temperature: f32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top_k: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        top_p: Option<f32>,
    }
    let Sampling { temperature, top_k, top_p, .. } = *sampling;
    let (top_k, top_p) = ((top_k > 0).then_some(top_k), (top_p < 1.0).then_some(top_p));
    Draws { sampling_temperature: temperature, top_k, top_p }.serialize(to)
}

impl OnPolicy {
    /// Returns the tokens of a prompt, at most, of a run with sequences of so many.
    pub fn room(&self, seq_len: u32) -> u32 {
        seq_len - self.max_tokens
    }
}

impl OnPolicyOptions {
    /// Resolves them; none of a run whose student writes nothing.
    ///
    /// # Errors
    /// [`UsageError`] for options that do not go together.
    pub(crate) fn resolve(
        &self,
        (objective, gemm): (Objective, Gemm),
        ShapeOptions { batch_size, seq_len }: ShapeOptions,
        division: Division,
        seed: u64,
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
        if gemm == Gemm::Cublas {
            return refuse(
                "--on-policy with --gemm cublas: a row of cuBLASLt's GEMMs has other bits where there are other rows beside it, so the \
                 tokens that are scored would not be those that were drawn. Leave --gemm out"
                    .into(),
            );
        }
        let max_tokens = self.max_tokens.unwrap_or(MOST_TOKENS);
        if max_tokens >= seq_len {
            return refuse(format!(
                "--max-tokens {max_tokens} leaves no room for a prompt in --seq-len {seq_len}: give fewer, or a longer --seq-len"
            ));
        }
        let (group_size, sequences) =
            (self.group_size.unwrap_or(1), u64::from(batch_size) * u64::from(division.grad_accum));
        if !sequences.is_multiple_of(group_size.into()) {
            return refuse(format!(
                "--group-size {group_size} does not divide the {sequences} sequences of a step (--batch-size times --grad-accum)"
            ));
        }
        let sampling = self.sampling.resolve(1.0, seed);
        if sampling.temperature == 0.0 {
            return refuse(
                "--sampling-temperature 0 takes the likeliest token: all completions of a prompt would be one. Give a number above 0"
                    .into(),
            );
        }
        Ok(Some(OnPolicy {
            share,
            max_tokens,
            group_size,
            sampling,
            prompt_tokens: self.prompt_tokens,
            rollout_slots: self.rollout_slots.unwrap_or(SlotChoice::Auto),
        }))
    }
}
