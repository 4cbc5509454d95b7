//! A training run, ready to step.

use std::borrow::Borrow;
use std::ops::{Deref, DerefMut};

use precast_fatbins::Digest;
use precast_plan::estimate;
use precast_plan::{Plan, Tensor, TokenComparison, TrainingPlan};
use precast_runtime::{Driver, DriverError, Placement, Sealed};

use super::HiddenStates;
use crate::base::startup_times::Startup;
use crate::device::fit::{Choice, Fit};
use crate::device::run_models::RunModels;
use crate::device::seal::{SealedDevice, seal};
use crate::device::training::Training;
use crate::device::tuning::{self, Tuning};
use crate::device::{self, DeviceError};
use crate::inputs::checkpoint::Weights;
use crate::options::{RunConfig, WeightFormat};

/// A training run, ready to step; what else is done with its device is done as with any that is sealed.
pub struct Session {
    pub plan: TrainingPlan,
    /// The form in which teachers' weights live on the device.
    pub teacher_format: WeightFormat,
    /// Digest of the table that selects variants, if the run has one of its own.
    pub tuned: Option<Digest>,
    /// Source of the rows of each teacher that is cached.
    pub hidden: Vec<Option<HiddenStates>>,
    /// Number of the teacher of the last micro-batch.
    pub(super) taught_by: usize,
    /// Ids and lengths of the micro-batches of the teacher's last pass.
    pub(super) passed: Vec<(Vec<u32>, Vec<u32>)>,
    pub(super) sealed: SealedDevice,
}

impl Session {
    /// Opens the device of a configuration, seals there and sends the weights.
    ///
    /// # Errors
    /// As [`Self::open`] and [`Self::upload`], and those of the device.
    pub fn of(models: &RunModels<impl Borrow<dyn Weights>>, config: &RunConfig) -> Result<Self, DeviceError> {
        let (driver, startup) = (device::open_for(config)?, &mut Startup::default());
        let (mut session, ()) = Self::open(driver, models, config, Placement::Arena, startup, |_| ())?;
        session.upload(models, |_| Ok(()))?;
        Ok(session)
    }

    /// Plans for a driver's device, with what `extend` adds to the plan, checks memory, verifies and loads kernels,
    /// seals. Nothing is uploaded yet.
    ///
    /// # Errors
    /// [`DeviceError`]: nothing has been launched.
    pub fn open<T>(
        driver: Box<dyn Driver>,
        models: &RunModels<impl Borrow<dyn Weights>>,
        config: &RunConfig,
        placement: Placement,
        startup: &mut Startup,
        extend: impl FnOnce(&mut Plan) -> T,
    ) -> Result<(Self, T), DeviceError> {
        let tuning = Tuning::read(&config.tuning)?;
        let mut fit = Training::fit_device(&models.shapes(), config, driver.device())?;
        fit.change(|plan| tuning::select(&mut plan.plan, driver.device(), tuning.as_ref()))?;
        let extension = fit.change(|plan| Ok::<_, DeviceError>(extend(&mut plan.plan)))?;
        startup.end("plan");
        let (kernels, how) = (&config.target.kernels, (placement, config.output.patience));
        let sealed = seal(driver, &fit, kernels, &config.model_names(), how, startup)?;
        let Fit { plan, choice: Choice { format: teacher_format, .. }, .. } = fit;
        if let Some(peak) = sealed.device().peak() {
            sealed.watch.step_takes(estimate::step_seconds(&plan.plan, config.division.grad_accum, &peak));
        }
        let tuned = tuning.map(|tuning| tuning.digest);
        let hidden = models.caches.iter().map(|cache| cache.as_ref().map(HiddenStates::of)).collect();
        Ok((Self { plan, teacher_format, tuned, hidden, taught_by: 0, passed: Vec::new(), sealed }, extension))
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
    columns: TokenComparison<Tensor>,
) -> Result<TokenComparison<Vec<f32>>, DriverError> {
    columns.try_map(|column| Ok(bytemuck::pod_collect_to_vec(&sealed.read(column)?)))
}
