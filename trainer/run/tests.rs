//! Records that unit tests share.

use crate::base::record_text::finite;
use crate::run::gpu::GpuRecord;
use crate::run::step::StepRecord;

/// Steps with these losses, of which those at `skipped` (from 0) are skipped.
pub fn steps(losses: &[f64], skipped: &[usize]) -> Vec<StepRecord> {
    let step = |(index, loss): (usize, &f64)| StepRecord {
        step: index as u64 + 1,
        loss: finite(*loss),
        kd_loss: None,
        ce_loss: None,
        grad_norm: None,
        lr: 1e-3,
        tokens: 1,
        step_ms: 1.0,
        tokens_per_s: 1.0,
        row_tokens_per_s: None,
        padding_share: None,
        memory_bytes: 1,
        gpu: GpuRecord::default(),
        skipped: skipped.contains(&index),
        held_out: None,
        guard: None,
        rollouts: None,
    };
    losses.iter().enumerate().map(step).collect()
}
