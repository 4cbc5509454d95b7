//! The roofline of a plan: a lower bound on its time from documented peak figures, marked as an estimate.

use precast_kernels::{Arch, Dtype};
use serde::Serialize;

use crate::plan::{Launch, Plan};

/// Peak figures of a representative device of an architecture, from its vendor's data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// The device.
    pub device: &'static str,
    /// Dense bf16 tensor throughput, FLOP/s.
    pub bf16_flops: f64,
    /// fp32 throughput, FLOP/s.
    pub fp32_flops: f64,
    /// Memory bandwidth, bytes/s.
    pub bytes_per_s: f64,
}

impl Peak {
    /// The figures for an architecture; none for the simulated GPU.
    pub fn of(arch: Arch) -> Option<Self> {
        match arch {
            Arch::Sm89 => Some(Self {
                device: "GeForce RTX 4090 (NVIDIA Ada architecture paper)",
                bf16_flops: 165.2e12,
                fp32_flops: 82.6e12,
                bytes_per_s: 1.008e12,
            }),
            Arch::Sm90a => Some(Self {
                device: "H200 SXM (NVIDIA data sheet)",
                bf16_flops: 989e12,
                fp32_flops: 67e12,
                bytes_per_s: 4.8e12,
            }),
            Arch::Sm121 => Some(Self {
                device: "GB10 (DGX Spark data sheet: 1 PFLOP sparse fp4, an eighth of it dense bf16)",
                bf16_flops: 125e12,
                fp32_flops: 31e12,
                bytes_per_s: 0.273e12,
            }),
            Arch::Sim => None,
        }
    }

    /// The least time a launch can take: arithmetic at the peak rate or bytes at the peak bandwidth.
    pub fn seconds(&self, launch: &Launch) -> f64 {
        let operands = launch.key.kernel().operands(&launch.params);
        let bytes: u64 = operands
            .iter()
            .map(|operand| {
                let passes = u64::from(operand.access.reads()) + u64::from(operand.access.writes());
                passes * operand.bytes()
            })
            .sum();
        let tensor = operands.iter().any(|operand| operand.dtype == Dtype::Bf16);
        let rate = if tensor { self.bf16_flops } else { self.fp32_flops };
        let flops = launch.key.kernel().flops(&launch.params) as f64;
        (flops / rate).max(bytes as f64 / self.bytes_per_s)
    }
}

/// Arithmetic of a phase, FLOP.
pub fn flops(plan: &Plan, phase: &str) -> u64 {
    let launches = plan.phases.iter().filter(|p| p.name == phase).flat_map(|p| &p.launches);
    launches.map(|launch| launch.key.kernel().flops(&launch.params)).sum()
}

/// Seconds of a phase at the roofline.
pub fn seconds(plan: &Plan, phase: &str, peak: &Peak) -> f64 {
    let launches = plan.phases.iter().filter(|p| p.name == phase).flat_map(|p| &p.launches);
    launches.map(|launch| peak.seconds(launch)).sum()
}
