//! Completions that a step trains on, as a line of `metrics.jsonl` says them.

use serde::{Deserialize, Serialize};

/// Completions that the student wrote for a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// Tokens whose log-probability or log-sum-exp in training has other bits than at sampling.
    pub mismatch: u64,
    /// Time of writing them.
    pub rollout_s: f64,
    /// Tokens drawn over that time, by all ranks.
    pub rollout_tokens_per_s: f64,
    /// Tokens of a completion, on the average.
    pub completion_tokens: f64,
    /// Those of the longest.
    pub completion_tokens_max: u64,
    /// Share of the completions that ended with a token that ends a text.
    pub ended_share: f64,
    /// Mean of the negative log-probabilities of the tokens drawn, nats: at temperature 1 an estimate of the entropy.
    pub entropy: f64,
}

/// Sums over the sequences of a replica, or of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutSums {
    /// Targets that count, those of the data included.
    pub counted: u64,
    pub completions: u64,
    /// Tokens drawn.
    pub drawn: u64,
    pub longest: u64,
    /// Completions that ended by themselves.
    pub ended: u64,
    /// Sum of the negative log-probabilities, nats.
    pub nll: f64,
    /// Tokens that are inputs.
    pub inputs: u64,
    /// Positions of the micro-batches that they are in.
    pub positions: u64,
    pub seconds: f64,
}

impl RolloutSums {
    /// Adds up those of replicas, in their order.
    pub fn of(all: &[Self]) -> Self {
        all.iter().fold(Self::default(), |sum, one| Self {
            counted: sum.counted + one.counted,
            completions: sum.completions + one.completions,
            drawn: sum.drawn + one.drawn,
            longest: sum.longest.max(one.longest),
            ended: sum.ended + one.ended,
            nll: sum.nll + one.nll,
            inputs: sum.inputs + one.inputs,
            positions: sum.positions + one.positions,
            seconds: sum.seconds.max(one.seconds),
        })
    }

    /// Returns the record.
    pub fn record(&self, mismatch: u64) -> RolloutRecord {
        let each = |sum: f64, of: u64| sum / of.max(1) as f64;
        RolloutRecord {
            mismatch,
            rollout_s: self.seconds,
            rollout_tokens_per_s: self.drawn as f64 / self.seconds.max(1e-9),
            completion_tokens: each(self.drawn as f64, self.completions),
            completion_tokens_max: self.longest,
            ended_share: each(self.ended as f64, self.completions),
            entropy: each(self.nll, self.drawn),
        }
    }
}
