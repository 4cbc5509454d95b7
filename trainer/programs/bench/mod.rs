//! `precast bench`: what a step and each of its kernels take on a device.
//!
//! The plan is that of a run, with a phase more for each group of launches that do the same work. Nothing else differs:
//! the same kernels, memory, graphs and seal.

mod compare;
mod generation;
pub(crate) mod groups;
mod kernels;
mod record;
mod report;
mod rollouts;
mod sweep;
mod tune;

use precast_plan::{Gemm, Plan};
use precast_runtime::Placement;
use precast_system::say;

use crate::base::startup_times::Startup;
use crate::device;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::options::RunConfig;
use crate::programs::failure::Failure;
use crate::programs::random_steps::{RANDOM_SEEDS, Steps};
pub use generation::{GenerationBench, bench_generation};
use groups::Group;
pub use kernels::{TimedBatch, missing, open_kernels, time_kernels};
use record::StepComparison;
pub use record::{KernelRecord, Record, StepRecord};
pub use rollouts::bench_rollouts;
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
        let mut steps = Steps::new(&mut session, config, vocab);
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

/// Measures start-up, steps, and every kernel of a step; where cuBLASLt computes the products, those of the bundle's kernels
/// too.
///
/// # Errors
/// [`Failure`] of the models or the device.
pub fn bench(config: &RunConfig, mut startup: Startup, reader: Reader) -> Result<Record, Failure> {
    startup.end("arguments");
    let mut record = measure(config, startup, reader)?;
    if let Some(version) = record.cublas.clone() {
        let mut by_bundle = config.clone();
        by_bundle.arithmetic.gemm = Gemm::Bundle;
        let bundle = measure(&by_bundle, Startup::default(), Reader::Program)?;
        record.beside_bundle = Some(StepComparison::new(version, &record, &bundle));
    }
    Ok(record)
}

fn measure(config: &RunConfig, mut startup: Startup, reader: Reader) -> Result<Record, Failure> {
    let Bench { mut session, mut steps, of_plan: groups } =
        Bench::open(config, &mut startup, reader, |plan| groups::add(plan, &groups::STEP))?;
    let step_s = median(steps.time(&mut session, config.steps())?);
    let launch_s = groups.iter().map(|group| {
        // Each group works on what a step leaves behind, not on what the group before it made of that.
        steps.one(&mut session)?;
        let samples: Result<Vec<f64>, Failure> = (0..SAMPLES).map(|_| sample(&mut session, group)).collect();
        Ok(median(samples?))
    });
    let launch_s = launch_s.collect::<Result<Vec<f64>, Failure>>()?;
    Ok(Record::new(config, &session, &startup, step_s, &groups, &launch_s))
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
