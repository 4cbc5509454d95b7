//! The roofline of a plan: a lower bound on its time from peak figures, marked as an estimate.

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
    /// Dense int8 tensor throughput, operations a second.
    pub int8_flops: f64,
    /// fp32 throughput, FLOP/s.
    pub fp32_flops: f64,
    /// Memory bandwidth, bytes/s.
    pub bytes_per_s: f64,
}

impl Peak {
    /// The figures of a representative device of an architecture, from its vendor's data sheet; none for the
    /// simulated GPU.
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

    /// What a device reaches, by its name: measured where it has been, else the data sheet of its architecture.
    pub fn reached(device: &str, arch: Arch) -> Option<Self> {
        let sheet = Self::of(arch)?;
        if !device.contains("H200") {
            return Some(sheet);
        }
        // A product of 8192 x 8192 x 8192 in cuBLAS, and a copy of 4 GiB; fp32 and int8 have not been measured.
        Some(Self { device: "H200 SXM (measured)", bf16_flops: 790e12, bytes_per_s: 4.28e12, ..sheet })
    }

    /// The least time a launch can take: arithmetic at the peak rate or bytes at the peak bandwidth.
    pub fn seconds(&self, launch: &Launch) -> f64 {
        self.arithmetic_seconds(launch).max(launch.bytes() as f64 / self.bytes_per_s)
    }

    /// The least time a launch's arithmetic can take.
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

    /// The speed of light of a step: the least time its arithmetic can take, all else being free.
    pub fn floor_seconds(&self, plan: &Plan, grad_accum: u32) -> f64 {
        let phase = |name| plan.phase(name).launches().map(|launch| self.arithmetic_seconds(launch)).sum::<f64>();
        f64::from(grad_accum) * phase(MICRO) + phase(UPDATE)
    }
}

/// Arithmetic of a phase, FLOP.
pub fn flops(plan: &Plan, phase: &str) -> u64 {
    plan.phase(phase).launches().map(Launch::flops).sum()
}

/// Seconds of a phase at the roofline.
pub fn seconds(plan: &Plan, phase: &str, peak: &Peak) -> f64 {
    plan.phase(phase).launches().map(|launch| peak.seconds(launch)).sum()
}
