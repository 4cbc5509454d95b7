//! A sealed training run on a device: weights up, steps, weights down.

mod adapter;
mod open;
mod state;
mod steps;
mod upload;

use std::ops::{Deref, DerefMut};

use precast_plan::estimate::{self, Peak};
use precast_plan::training::{MICRO, UPDATE};
use precast_plan::{Comparison, Tensor, TrainingPlan};
use precast_runtime::{Driver, DriverError, Placement, Sealed};

use crate::base::notes::note;
use crate::base::startup_times::Startup;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::seal::{SealedDevice, seal};
use crate::device::weight_format::Chosen;
use crate::device::{DeviceError, one_memory};
use crate::options::{RunConfig, WeightFormat};

/// A training run, ready to step; what else is done with its device is done as with any that is sealed.
pub struct Session {
    plan: TrainingPlan,
    /// The form in which the teacher's weights live on the device.
    pub teacher_format: WeightFormat,
    sealed: SealedDevice,
}

impl Session {
    /// Checks memory, verifies and loads the kernels of a plan for the driver's device, seals.
    ///
    /// # Errors
    /// [`DeviceError`]: nothing has been launched.
    fn seal(
        driver: Box<dyn Driver>,
        Chosen { plan, format, note: said }: Chosen<TrainingPlan>,
        config: &RunConfig,
        placement: Placement,
        startup: &mut Startup,
    ) -> Result<Self, DeviceError> {
        said.iter().for_each(note);
        let device = driver.device();
        one_memory::check(device, &plan.plan, &HostMemory::of(&plan, &config.data, DeviceMemory::of(device)))?;
        let how = (placement, config.output.patience);
        let sealed = seal(driver, &plan.plan, &config.target.kernels, &config.model_names(), how, startup)?;
        if let Some(peak) = Peak::reached(&sealed.device().name, plan.plan.arch) {
            let phase_s = |phase| estimate::seconds(&plan.plan, phase, &peak);
            sealed.watch.step_takes(f64::from(config.division.grad_accum) * phase_s(MICRO) + phase_s(UPDATE));
        }
        Ok(Self { plan, teacher_format: format, sealed })
    }

    pub fn plan(&self) -> &TrainingPlan {
        &self.plan
    }

    /// Returns the highest rates of the device; none for the simulated GPU.
    pub fn limit(&self) -> Option<Peak> {
        Peak::reached(&self.sealed.device().name, self.plan.plan.arch)
    }
}

impl Deref for Session {
    type Target = SealedDevice;

    fn deref(&self) -> &Self::Target {
        &self.sealed
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.sealed
    }
}

/// Reads the columns of a comparison, a value each token.
pub(crate) fn read_columns(
    sealed: &mut Sealed,
    columns: Comparison<Tensor>,
) -> Result<Comparison<Vec<f32>>, DriverError> {
    columns.try_map(|column| Ok(bytemuck::pod_collect_to_vec(&sealed.read(column)?)))
}
