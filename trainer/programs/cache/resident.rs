//! A teacher that is on the device whole.

use precast_plan::HiddenPlan;
use precast_system::progress::Wait;
use std::sync::Arc;

use super::engine::{Emit, Engine, Opening};
use super::sequences::{Sequence, laid_out};
use crate::device::DeviceError;
use crate::device::seal::SealedDevice;
use crate::device::upload::{Staging, Upload};
use crate::programs::failure::Failure;

/// A teacher that is on the device whole.
pub(super) struct Resident {
    plan: HiddenPlan,
    sealed: SealedDevice,
    batch: usize,
}

impl Resident {
    /// Seals a plan, and sends the teacher's weights.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(opening: Opening<'_>, mut plan: HiddenPlan) -> Result<Self, DeviceError> {
        let (request, teacher) = (opening.request, opening.teacher);
        let mut sealed = opening.seal(&mut plan.plan, &plan.model, None)?;
        let mut wait = Wait::start("sending weights");
        let progress = &mut |_| {
            wait.goes_on();
            Ok(())
        };
        Upload::new(&mut sealed, teacher, progress).model(&plan.model, Staging::Quantize)?;
        Ok(Self { plan, sealed, batch: request.shape.batch_size as usize })
    }
}

impl Engine for Resident {
    fn sequences(&self) -> usize {
        self.batch
    }

    fn hidden(&mut self, sequences: &[Arc<Sequence>], emit: &mut Emit<'_>) -> Result<(), Failure> {
        let Self { plan, sealed, batch } = self;
        for sequences in sequences.chunks(*batch) {
            sealed.write(plan.ids, bytemuck::cast_slice(&laid_out(sequences, plan.ids.elems)))?;
            sealed.run(HiddenPlan::HIDDEN)?;
            let of_one = plan.hidden.elems / *batch as u64;
            emit(sequences.len(), sealed.read(plan.hidden.slice(0, sequences.len() as u64 * of_one))?)?;
        }
        Ok(())
    }
}
