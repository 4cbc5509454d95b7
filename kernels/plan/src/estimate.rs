//! Roofline of a plan: a lower bound on its time from peak figures, marked as an estimate.

use precast_kernels::{Arch, Dtype};
use serde::Serialize;

use crate::node::Launch;
use crate::plan::Plan;
use crate::training::{MICRO, UPDATE};

/// Peak figures of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    pub device: &'static str,
    /// Dense bf16 tensor throughput, FLOP/s.
    pub bf16_flops: f64,
    /// Dense int8 tensor throughput, operations/s.
    pub int8_flops: f64,
    /// fp32 throughput, FLOP/s.
    pub fp32_flops: f64,
    /// Memory bandwidth, bytes/s.
    pub bytes_per_s: f64,
}

impl Peak {
    /// Returns the data sheet figures of a representative device; none for the simulated GPU.
    pub fn of(arch: Arch) -> Option<Self> {
        match arch {
            Arch::Sm89 => Some(Self {
                device: "GeForce RTX 4090 (NVIDIA Ada architecture paper)",
                bf16_flops: 165.2e12,
                int8_flops: 660.6e12,
                fp32_flops: 82.6e12,
                bytes_per_s: 1.008e12,
            }),
            Arch::Sm90a | Arch::Sm90Portable => Some(Self {
                device: "H200 SXM (NVIDIA data sheet)",
                bf16_flops: 989e12,
                int8_flops: 1979e12,
                fp32_flops: 67e12,
                bytes_per_s: 4.8e12,
            }),
            Arch::Sm121 => Some(Self {
                device: "GB10 (DGX Spark data sheet: 1 PFLOP sparse fp4, an eighth of it dense bf16, a quarter dense int8)",
                bf16_flops: 125e12,
                int8_flops: 250e12,
                fp32_flops: 31e12,
                bytes_per_s: 0.273e12,
            }),
            Arch::Sim => None,
        }
    }

    /// Returns the figures that a device reaches, by name: measured ones if there are any, else its architecture's data
    /// sheet.
    pub fn reached(device: &str, arch: Arch) -> Option<Self> {
        let sheet = Self::of(arch)?;
        if !device.contains("H200") {
            return Some(sheet);
        }
        // A cuBLAS product of 8192 x 8192 x 8192, and a copy of 4 GiB; fp32 and int8 are not measured.
        Some(Self { device: "H200 SXM (measured)", bf16_flops: 790e12, bytes_per_s: 4.28e12, ..sheet })
    }

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
