//! A teacher that is on the device whole.

use precast_plan::HiddenPlan;
use precast_system::progress::Wait;

use super::engine::{Emit, Engine, Opening, read_rows};
use super::sequences::{Micro, laid_out, taken};
use crate::device::DeviceError;
use crate::device::fit::Fit;
use crate::device::seal::SealedDevice;
use crate::device::upload::{Staging, Upload};
use crate::inputs::data::Places;
use crate::inputs::teacher_cache::Made;
use crate::run::failure::Failure;

/// A teacher that is on the device whole.
pub(super) struct Resident<'a> {
    plan: HiddenPlan,
    sealed: SealedDevice,
    made: &'a Made,
    places: Places,
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
        if let Some(head) = &plan.head {
            Upload::new(&mut sealed, teacher, progress).parameters(&[(head.parameter.clone(), head.tensor())])?;
        }
        Ok(Self { plan, sealed, made, places: request.places() })
    }
}

impl Engine for Resident<'_> {
    fn micros(&self) -> usize {
        1
    }

    fn rows(&mut self, micros: &[Micro], emit: &mut Emit<'_>) -> Result<(), Failure> {
        let Self { plan, sealed, made, places } = self;
        for micro in micros {
            let batch = laid_out(micro, *places);
            sealed.write(plan.ids, bytemuck::cast_slice(&batch.ids))?;
            sealed.write(plan.sequences.all, bytemuck::cast_slice(&plan.sequences.words(&batch.lengths)))?;
            sealed.run(HiddenPlan::HIDDEN)?;
            emit(read_rows(sealed, &plan.results, (taken(micro), places.count()), made)?)?;
        }
        Ok(())
    }
}
