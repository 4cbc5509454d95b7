//! From the models of a run to its session: whatever trains opens it here.

use std::borrow::Borrow;

use precast_plan::Plan;
use precast_runtime::{Driver, Placement};

use super::Session;
use crate::base::startup_times::Startup;
use crate::device::run_models::RunModels;
use crate::device::{self, DeviceError};
use crate::inputs::checkpoint::Weights;
use crate::options::RunConfig;

impl Session {
    /// Opens the device of a configuration, seals there and sends the weights.
    ///
    /// # Errors
    /// As [`Self::uploaded`], and those of the device.
    pub fn of(models: &RunModels<impl Borrow<dyn Weights>>, config: &RunConfig) -> Result<Self, DeviceError> {
        Self::uploaded(device::open_for(config)?, models, config, Placement::Arena)
    }

    /// Seals on a driver's device and sends the weights.
    ///
    /// # Errors
    /// As [`Self::open`] and [`Self::upload`].
    pub fn uploaded(
        driver: Box<dyn Driver>,
        models: &RunModels<impl Borrow<dyn Weights>>,
        config: &RunConfig,
        placement: Placement,
    ) -> Result<Self, DeviceError> {
        let (mut session, ()) = Self::open(driver, models, config, placement, &mut Startup::new(), |_| ())?;
        session.upload(models, |_| Ok(()))?;
        Ok(session)
    }

    /// Plans for a driver's device, with what `extend` adds to the plan, checks memory, verifies and loads kernels, seals. Nothing is
    /// uploaded yet.
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
        let shapes = models.shapes();
        let advise = |mut failure| {
            if let DeviceError::Memory { first, .. } | DeviceError::OneMemory { first, .. } = &mut failure
                && shapes.student_could_be_stored(config)
            {
                *first = "--student-format stored, ";
            }
            failure
        };
        let mut chosen = shapes.plan(driver.device(), config).map_err(advise)?;
        let extension = extend(&mut chosen.plan.plan);
        startup.end("plan");
        Ok((Self::seal(driver, chosen, config, placement, startup).map_err(advise)?, extension))
    }
}
