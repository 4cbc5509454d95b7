//! `precast bench`: what a step and each of its kernels take on a device.
//!
//! The plan is that of a run, with a phase more for each group of launches that do the same work. Nothing else differs:
//! the same kernels, memory, graphs and seal.

mod compare;
mod generation;
pub(crate) mod groups;
mod kernel_record;
mod kernels;
mod random_steps;
mod record;
mod rollouts;
mod step;
mod sweep;
mod tune;

use std::path::Path;

use precast_plan::Plan;
use precast_runtime::Placement;
use precast_system::say;

use crate::base::roles::Models;
use crate::base::startup_times::Startup;
use crate::device;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::options::RunConfig;
use crate::programs::failure::Failure;
pub use generation::GenerationBench;
pub(crate) use generation::bench_generation;
use groups::Group;
pub use kernels::{KernelBench, missing, open_kernels, time_kernels};
use random_steps::{RANDOM_SEEDS, Steps};
pub(crate) use record::{Measured, Record};
pub(crate) use rollouts::bench_rollouts;
pub(crate) use step::bench;
pub use sweep::{Sweep, sweep};
pub use tune::tune;

/// Timings of a group, of which the median counts.
const SAMPLES: usize = 5;
/// Runs of a group's launches in one timing.
const REPEATS: u32 = 2;

/// Reader of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Hears of device, kernels and models first.
    Person,
    Program,
}

/// A run that steps on random tokens.
struct Bench<T> {
    session: Session,
    steps: Steps,
    /// Value that the caller of [`Bench::open`] made of the plan.
    of_plan: T,
}

impl<T> Bench<T> {
    /// Seals a configuration's plan, after `extend` has added what it wants to measure, and makes the first step.
    fn open(
        config: &RunConfig,
        startup: &mut Startup,
        reader: Reader,
        extend: impl FnOnce(&mut Plan) -> T,
    ) -> Result<Self, Failure> {
        let (mut session, vocab, of_plan) = session(config, startup, reader, extend)?;
        let mut steps = Steps::new(&mut session, config.shape, config.division.grad_accum, vocab);
        steps.one(&mut session)?;
        startup.end("first step");
        Ok(Self { session, steps, of_plan })
    }
}

/// Seals a configuration's plan, after `extend` has added to it, and sends the weights. Returns the student's vocabulary, too.
fn session<T>(
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
fn recorded(config: &RunConfig, session: &Session) -> RunConfig {
    RunConfig { teacher_format: config.teacher_format.map(|_| session.teacher_format), ..config.clone() }
}

/// Lists models, by role.
fn of_models(models: Models<&Path>) -> Vec<(&'static str, String)> {
    models.iter().map(|(role, path)| (role.name(), path.display().to_string())).collect()
}

/// Seconds of one launch of a group, measured once: in a sequence of such launches, the handing over from one to the next included.
fn sample(session: &mut Session, group: &Group) -> Result<f64, Failure> {
    Ok(session.time(&group.timed_as, REPEATS)? / group.timed_launches() as f64)
}

/// The middle value; of an even number the upper one.
///
/// # Panics
/// If there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests;
