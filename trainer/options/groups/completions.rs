//! Completions that a student writes: to train on them, and of held-out prompts.

use precast_plan::Sampling;
use serde::{Serialize, Serializer};

use crate::options::SlotChoice;

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
