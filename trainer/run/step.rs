//! A step, as a line of `metrics.jsonl` says it.

use serde::{Deserialize, Serialize};

use crate::run::gpu::GpuRecord;
use crate::run::guard::Guarded;
use crate::run::rollout::RolloutRecord;

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Step, counted from 1.
    pub step: u64,
    /// alpha T^2 kd_loss + (1 - alpha) ce_loss; without a teacher ce_loss.
    pub loss: Option<f64>,
    /// Divergence of teacher and student at temperature, mean over counted tokens, nats; 0 without a teacher.
    pub kd_loss: Option<f64>,
    /// Cross entropy at temperature 1, mean over counted tokens, nats.
    pub ce_loss: Option<f64>,
    /// L2 norm of all gradients before clipping.
    pub grad_norm: Option<f64>,
    /// Learning rate of the step, after warm-up and schedule.
    pub lr: f64,
    /// Tokens that counted.
    pub tokens: u64,
    /// Time of the step.
    pub step_ms: f64,
    /// Counted tokens over that time.
    pub tokens_per_s: f64,
    /// Tokens of rows, counted or not, that predict another, over that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_tokens_per_s: Option<f64>,
    /// Share of the places of the step's micro-batches that hold no such token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding_share: Option<f64>,
    /// Device memory of the run.
    pub memory_bytes: u64,
    /// The state of the GPU, in the lines of steps that are logged.
    #[serde(flatten)]
    pub gpu: GpuRecord,
    /// The gradient norm was not finite and the weights were left alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// None after most steps.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<HeldOutRecord>,
    /// Completions that the student wrote for the step, of an on-policy run.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rollouts: Option<RolloutRecord>,
    /// Distance of int8's gradients of its first micro-batch from bf16's, a layer each: none of most steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guarded>,
}

/// Losses of data that the run does not train on, in the line of the step after which they were computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutRecord {
    /// As `loss`, of those data.
    pub eval_loss: Option<f64>,
    pub eval_kd_loss: Option<f64>,
    pub eval_ce_loss: Option<f64>,
    /// Their tokens that count.
    pub eval_tokens: u64,
}

/// The steps among these that were compared with bf16's.
pub fn guarded(records: &[StepRecord]) -> impl DoubleEndedIterator<Item = (u64, &Guarded)> + Clone {
    records.iter().filter_map(|record| Some((record.step, record.guard.as_ref()?)))
}

/// The mean of what of these steps is finite; none where nothing is.
pub fn mean(records: &[StepRecord], of: impl Fn(&StepRecord) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = records.iter().filter_map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
