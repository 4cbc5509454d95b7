//! A teacher that is on the device whole.

use precast_plan::HiddenPlan;
use precast_system::progress::Wait;
use std::sync::Arc;

use super::engine::{Emit, Engine, Opening, read_rows};
use super::sequences::{Sequence, laid_out};
use crate::device::DeviceError;
use crate::device::fit::Fit;
use crate::device::seal::SealedDevice;
use crate::device::upload::{Staging, Upload};
use crate::inputs::teacher_cache::Made;
use crate::run::failure::Failure;

/// A teacher that is on the device whole.
pub(super) struct Resident<'a> {
    plan: HiddenPlan,
    sealed: SealedDevice,
    made: &'a Made,
    batch: usize,
}

impl<'a> Resident<'a> {
    /// Seals a plan, and sends the teacher's weights.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(opening: Opening<'a>, mut fit: Fit<HiddenPlan>) -> Result<Self, DeviceError> {
        let Opening { request, teacher, made, .. } = opening;
        let mut sealed = opening.seal(&mut fit, (None, 0))?;
        let plan = fit.plan;
        let mut wait = Wait::start("sending weights");
        let progress = &mut |_| {
            wait.goes_on();
            Ok(())
        };
        Upload::new(&mut sealed, teacher, progress).model(&plan.buffers.model, Staging::Quantize)?;
        sealed.write(plan.sequences.all, bytemuck::cast_slice(&plan.sequences.full()))?;
        if let Some(head) = &plan.head {
            Upload::new(&mut sealed, teacher, progress).parameters(&[(head.parameter.clone(), head.tensor())])?;
        }
        Ok(Self { plan, sealed, made, batch: request.shape.batch_size as usize })
    }
}

impl Engine for Resident<'_> {
    fn sequences(&self) -> usize {
        self.batch
    }

    fn rows(&mut self, sequences: &[Arc<Sequence>], emit: &mut Emit<'_>) -> Result<(), Failure> {
        let Self { plan, sealed, made, batch } = self;
        for sequences in sequences.chunks(*batch) {
            sealed.write(plan.ids, bytemuck::cast_slice(&laid_out(sequences, plan.ids.elems)))?;
            sealed.run(HiddenPlan::HIDDEN)?;
            emit(sequences.len(), read_rows(sealed, &plan.results, (sequences.len(), *batch), made)?)?;
        }
        Ok(())
    }
}
