//! A plan, with the buffers that its host side writes and reads.

use std::ops::Deref;

use precast_core::Plan;
use precast_core::plan::Builder;

use crate::bounds;
use crate::recipe::PlanError;

/// A plan of one kind, whose buffers it gives by their fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Lowered<B> {
    pub plan: Plan,
    pub buffers: B,
}

impl<B> Lowered<B> {
    /// Finishes a plan, unless it is too large.
    pub(crate) fn finish(b: Builder, buffers: B) -> Result<Self, PlanError> {
        let plan = b.finish();
        bounds::refuse(plan.arena_bytes.into())?;
        Ok(Self { plan, buffers })
    }
}

impl<B> Deref for Lowered<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.buffers
    }
}

impl<B> AsRef<Plan> for Lowered<B> {
    fn as_ref(&self) -> &Plan {
        &self.plan
    }
}

impl<B> AsMut<Plan> for Lowered<B> {
    fn as_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }
}
