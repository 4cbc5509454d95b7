//! A sealed training run on a device: weights up, steps, weights down.

mod adapter;
mod open;
mod state;
mod steps;
mod upload;

use precast_fatbins::Digest;
use precast_plan::estimate::{self, Peak};
use precast_plan::training::{MICRO, UPDATE};
use precast_plan::{Comparison, Tensor, TrainingPlan};
use precast_runtime::{Driver, DriverError, Placement, Sealed};

use crate::base::note::note;
use crate::base::startup::Startup;
use crate::device::DeviceError;
use crate::device::heading::Heading;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::one_memory;
use crate::device::seal::{SealedDevice, seal};
use crate::device::watch::Watch;
use crate::device::weight_format::Chosen;
use crate::options::RunConfig;
use crate::options::WeightFormat;

/// A training run, ready to step.
pub struct Session {
    plan: TrainingPlan,
    teacher_format: WeightFormat,
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

    /// Who ends the process if the device hangs.
    pub fn watch(&self) -> &Watch {
        &self.sealed.watch
    }

    /// Returns the form in which the teacher's weights live on the device.
    pub fn teacher_format(&self) -> WeightFormat {
        self.teacher_format
    }

    pub fn plan(&self) -> &TrainingPlan {
        &self.plan
    }

    /// The device as it is from here on: what it is, what was loaded, what it exchanges by.
    pub fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// Returns the highest rates of the device; none for the simulated GPU.
    pub fn limit(&self) -> Option<Peak> {
        Peak::reached(&self.sealed.device().name, self.plan.plan.arch)
    }

    /// Digest of the bundle whose kernels run.
    pub fn bundle(&self) -> Digest {
        self.sealed.bundle
    }

    /// Returns the heading that a run prints first.
    pub fn heading(&self) -> Heading {
        self.sealed.heading().ranks(self.sealed.ranks())
    }

    /// Device memory that disappeared while everything was loaded and taken, bytes.
    pub fn taken_bytes(&self) -> u64 {
        self.sealed.taken_bytes
    }
}

/// Reads the columns of a comparison, a value each token.
pub(crate) fn read_columns(
    sealed: &mut Sealed,
    columns: Comparison<Tensor>,
) -> Result<Comparison<Vec<f32>>, DriverError> {
    columns.try_map(|column| Ok(bytemuck::pod_collect_to_vec(&sealed.read(column)?)))
}
