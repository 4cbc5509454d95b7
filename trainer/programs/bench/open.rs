//! A run that is measured, up to its first step.

use std::path::Path;

use precast_plan::Plan;
use precast_runtime::Placement;
use precast_system::say;

use super::random_steps::{RANDOM_SEEDS, Steps};
use crate::base::roles::Models;
use crate::base::startup_times::Startup;
use crate::device;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::inputs::data::Step;
use crate::options::RunConfig;
use crate::run::failure::Failure;

/// Reader of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Hears of device, kernels and models first.
    Person,
    Program,
}

/// A run that steps on random tokens, or on rows of data.
pub(super) struct Bench<T> {
    pub(super) session: Session,
    pub(super) steps: Steps,
    /// Value that the caller of [`Bench::open`] made of the plan.
    pub(super) of_plan: T,
}

impl<T> Bench<T> {
    /// Seals a configuration's plan, after `extend` has added what it wants to measure, and makes the first step.
    pub(super) fn open(
        config: &RunConfig,
        startup: &mut Startup,
        reader: Reader,
        extend: impl FnOnce(&mut Plan) -> T,
    ) -> Result<Self, Failure> {
        Self::open_on((config, &[]), startup, reader, extend)
    }

    /// Like [`Self::open`], on steps of data, if there are any.
    pub(super) fn open_on(
        (config, data): (&RunConfig, &[Step]),
        startup: &mut Startup,
        reader: Reader,
        extend: impl FnOnce(&mut Plan) -> T,
    ) -> Result<Self, Failure> {
        let (mut session, vocab, of_plan) = session(config, startup, reader, extend)?;
        let mut steps = match data {
            [] => Steps::new(&mut session, config.shape, config.division.grad_accum, vocab),
            data => Steps::of(data),
        };
        steps.one(&mut session)?;
        startup.end("first step");
        Ok(Self { session, steps, of_plan })
    }
}

/// Seals a configuration's plan, after `extend` has added to it, and sends the weights. Returns the student's
/// vocabulary, too.
pub(super) fn session<T>(
    config: &RunConfig,
    startup: &mut Startup,
    reader: Reader,
    extend: impl FnOnce(&mut Plan) -> T,
) -> Result<(Session, u32, T), Failure> {
    let models = RunModels::open_or_random(config, RANDOM_SEEDS)?;
    startup.end("models");
    let driver = device::open_for(config)?;
    startup.end("device");
    let (mut session, of_plan) = Session::open(driver, &models, config, Placement::Arena, startup, extend)?;
    if reader == Reader::Person {
        say!("{}\n", session.heading().models(config, &models));
    }
    session.upload(&models, |_| Ok(()))?;
    startup.end("upload");
    Ok((session, models.student().config().vocab, of_plan))
}

/// Returns a configuration with the form in which the teacher's weights live on the device.
pub(super) fn recorded(config: &RunConfig, session: &Session) -> RunConfig {
    RunConfig { teacher_format: config.teacher_format.map(|_| session.teacher_format), ..config.clone() }
}

/// Lists models, by role.
pub(super) fn of_models(models: Models<&Path>) -> Vec<(&'static str, String)> {
    models.iter().map(|(role, path)| (role.name(), path.display().to_string())).collect()
}
