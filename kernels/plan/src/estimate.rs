//! Roofline of a plan: a lower bound on its time from peak figures, marked as an estimate.

use precast_kernels::Dtype;

use crate::chips::Peak;
use crate::node::Launch;
use crate::plan::Plan;
use crate::training::{MICRO, UPDATE};

impl Peak {
    /// Returns a lower bound on a launch's time, seconds: arithmetic at the peak rate or bytes at the peak bandwidth,
    /// whichever is slower.
    pub fn seconds(&self, launch: &Launch) -> f64 {
        self.arithmetic_seconds(launch).max(launch.bytes() as f64 / self.bytes_per_s)
    }

    /// Returns a lower bound on the time of a launch's arithmetic, seconds.
    pub fn arithmetic_seconds(&self, launch: &Launch) -> f64 {
        let operands = launch.key.kernel().operands(&launch.params);
        let has = |dtype| operands.iter().any(|operand| operand.format == dtype);
        let rate = match (has(Dtype::I8), has(Dtype::Bf16)) {
            (true, _) => self.int8_flops,
            (false, true) => self.bf16_flops,
            (false, false) => self.fp32_flops,
        };
        launch.flops() as f64 / rate
    }

    /// Returns a lower bound on a step's time, seconds: its arithmetic alone.
    pub fn floor_seconds(&self, plan: &Plan, grad_accum: u32) -> f64 {
        let phase = |name| plan.phase(name).launches().map(|launch| self.arithmetic_seconds(launch)).sum::<f64>();
        f64::from(grad_accum) * phase(MICRO) + phase(UPDATE)
    }
}

/// Returns the arithmetic of a phase, FLOP.
pub fn flops(plan: &Plan, phase: &str) -> u64 {
    plan.phase(phase).launches().map(Launch::flops).sum()
}

/// Returns the time of a phase at the roofline, seconds.
pub fn seconds(plan: &Plan, phase: &str, peak: &Peak) -> f64 {
    plan.phase(phase).launches().map(|launch| peak.seconds(launch)).sum()
}
