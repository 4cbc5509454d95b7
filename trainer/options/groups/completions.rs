//! Completions that a student writes: to train on them, and of held-out prompts.

use clap::{Args, value_parser};
use precast_plan::{Gemm, Sampling};
use serde::{Serialize, Serializer};

use super::{Change, SamplingOptions};
use crate::options::usage::first_asked;
use crate::options::{SlotChoice, UsageError};

/// Tokens of a completion where nothing is said.
const MOST_TOKENS: u32 = 512;

/// Options of completions, as they are asked for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "On-policy")]
pub struct CompletionOptions {
    /// Tokens of a completion, at most. Without --on-policy, options of completions are of prompts in --eval-data
    /// [default: 512]
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
    /// Completions that are written at a time: a number, or auto for as many as there is room for, up to those of a
    /// step if it trains on them; results do not depend on it [default: auto]
    #[arg(long, value_name = "N|auto", add = Change::AtResume)]
    pub rollout_slots: Option<SlotChoice>,
}

impl CompletionOptions {
    /// Returns the first of these that is asked for, but --group-size, which held-out prompts have not.
    pub(crate) fn first_asked(&self) -> Option<String> {
        let Self { max_tokens, group_size: _, sampling, prompt_tokens, rollout_slots } = self;
        let SamplingOptions { sampling_temperature, top_k, top_p } = sampling;
        first_asked!(max_tokens, sampling_temperature, top_k, top_p, prompt_tokens, rollout_slots)
    }

    /// Resolves how the student writes, of a run in which it does.
    ///
    /// # Errors
    /// [`UsageError`] for options that do not go together.
    pub(crate) fn resolve(&self, gemm: Gemm, seq_len: u32, seed: u64) -> Result<Completions, UsageError> {
        if gemm == Gemm::Cublas {
            return Err(UsageError(
                "completions with --gemm cublas: a row of cuBLASLt's GEMMs has other bits where there are other rows \
                beside it, so the \
                 tokens that are scored would not be those that were drawn. Leave --gemm out"
                    .into(),
            ));
        }
        let max_tokens = self.max_tokens.unwrap_or(MOST_TOKENS);
        if max_tokens >= seq_len {
            return Err(UsageError(format!(
                "--max-tokens {max_tokens} leaves no room for a prompt in --seq-len {seq_len}: give fewer, or a \
                longer --seq-len"
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

/// How a student completes prompts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Completions {
    /// Tokens of a completion, at most.
    pub max_tokens: u32,
    #[serde(flatten, serialize_with = "draws")]
    pub sampling: Sampling,
    /// Tokens at the beginning of each sequence of a stream that are its prompt.
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

impl Completions {
    /// Returns the tokens of a prompt, at most, of a run with sequences of so many.
    pub fn room(&self, seq_len: u32) -> u32 {
        seq_len - self.max_tokens
    }
}
