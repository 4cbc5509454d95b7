//! Lowers the optimizer's step and its exchanges between ranks.

use super::step::Step;
use super::{GATHER, UPDATE};
use crate::ops::Ops;

impl Step<'_> {
    /// Lowers norm, clip and AdamW.
    pub fn update(&self, ops: &mut Ops<'_>) {
        ops.phase(UPDATE);
        ops.scope("student");
        ops.adamw(&self.state, self.decayed, self.tensors, &self.run.recipe);
        if self.run.share.ranks > 1 {
            ops.phase(GATHER);
            ops.scope("ranks");
            // A teacher in the run hides twice the bytes, if they go by NVLink.
            let divided = self.models.teacher.is_some() && self.run.arch.has_nvlink();
            ops.spread(&self.state, divided);
        }
    }
}
