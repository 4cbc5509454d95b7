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
            ops.spread(&self.state);
        }
    }
}
