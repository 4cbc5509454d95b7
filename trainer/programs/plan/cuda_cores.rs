//! GEMMs in 16 or 8 bits that run on CUDA cores, which takes several times as long as on tensor cores.

use std::fmt::{self, Display, Formatter};

use precast_kernels::gemm::on_tensor_cores;
use precast_kernels::{Arch, KeyVariant};
use precast_system::count;
use serde::Serialize;

use crate::programs::bench::groups::Group;

/// Purposes of the GEMMs of a step that no tensor core computes.
#[derive(Debug, Serialize)]
pub(super) struct OnCudaCores(Vec<String>);

impl OnCudaCores {
    /// None where there are none, and for simulated GPUs, which have no cores.
    pub fn of(groups: &[Group], arch: Arch) -> Option<Self> {
        let is_slow = |group: &&Group| {
            group.launches[0].pair().is_some_and(|KeyVariant { key, variant }| {
                let is_gemm = ["gemm.", "lora."].iter().any(|family| key.op().starts_with(family));
                is_gemm && !key.text().contains("x=f32") && !on_tensor_cores(variant)
            })
        };
        let all: Vec<String> = groups.iter().filter(is_slow).map(Group::purpose).collect();
        (arch != Arch::Sim && !all.is_empty()).then_some(Self(all))
    }
}

impl Display for OnCudaCores {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let gemms = count(self.0.len(), "GEMM");
        write!(f, "{gemms} on CUDA cores, as rows are no multiples of 8: several times slower than on tensor cores")?;
        self.0.iter().try_for_each(|purpose| write!(f, "\n  {purpose}"))
    }
}
