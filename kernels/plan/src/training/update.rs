//! Lowers the optimizer's step and its exchanges between ranks.

use super::phases::{GATHER, MASTERS, UPDATE};
use super::step::Step;
use crate::ops::Ops;
use precast_kernels::Arch;

impl Step<'_> {
    /// Lowers norm, clip and AdamW.
    pub fn update(&self, ops: &mut Ops<'_>) {
        ops.phase(UPDATE);
        ops.scope("student");
        ops.adamw(&self.state, self.decayed, self.tensors, &self.run.recipe);
        if self.run.share.ranks > 1 {
            ops.phase(GATHER);
            ops.scope("ranks");
            ops.spread(&self.state, self.divides_quantization());
        }
        if self.state.has_rounded_pieces() {
            ops.phase(MASTERS);
            ops.scope("ranks");
            ops.collect_masters(&self.state);
        }
    }

    /// True if ranks quantize the student's layers for each other: a teacher that is computed next hides twice the
    /// bytes, on links that are as fast.
    fn divides_quantization(&self) -> bool {
        self.models.teachers.iter().any(|(_, one)| one.model().is_some())
            && !self.run.on_policy
            && is_of_servers(self.run.arch)
    }
}

/// True for GPUs of servers, which NVLink connects but for a few; and for the simulated one, whose tests divide, too.
fn is_of_servers(arch: Arch) -> bool {
    matches!(arch, Arch::Sm80 | Arch::Sm90a | Arch::Sm100 | Arch::Sim)
}
