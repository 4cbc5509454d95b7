//! `precast distill` and `precast train`: the run from the first file to the last.

mod begin;
mod certify;
mod digests;
mod end;
mod fault;
mod held_out;
mod hung;
mod inputs;
mod on_policy;
mod open;
mod progress;
mod ready;
mod result;
mod resume;
mod rollout_samples;
mod rollout_steps;
mod running;
mod samples;
mod steps;
mod teacher_score;
mod wait;

use std::path::{Path, PathBuf};

use precast_runtime::Placement;
use precast_system::say;

use crate::base::notes;
use crate::base::startup_times::Startup;
use crate::base::stop::Stop;
use crate::device;
use crate::device::run_models::RunModels;
use crate::device::tuning::Tuning;
use crate::options::{Options, Purpose};
use crate::programs::covered;
use crate::programs::failure::Failure;
use crate::programs::rank_end;
use crate::ranks::{Place, Ranks};
use crate::run::identity::Identity;
use crate::run::log;
use crate::run::out::{Out, Start, refuse_inputs};
use certify::Teacher;
use digests::ModelDigests;
use inputs::{note_of_turns, take_stop_token};
pub(crate) use inputs::{read, read_data};
use open::{open, over};
use ready::ready;
use resume::Resumed;
pub(crate) use rollout_steps::{RolloutStep, Trained};
use running::Running;

/// Settings of a run besides its configuration.
#[derive(Clone, Debug)]
pub struct Mode {
    /// Treatment of a run that is in the output directory.
    pub start: Start,
    /// The file that options were read from.
    pub config_file: Option<PathBuf>,
    /// Give each buffer its own allocation, for memory checkers.
    pub placement: Placement,
    /// Place of this process among the ranks of the run.
    pub place: Place,
}

/// Trains a model, of a teacher if there is one; writes `metrics.jsonl`, `run.json`, `run.log`, `report.html` and `student/` or
/// `adapter/` to the output directory.
///
/// # Errors
/// [`Failure`]; metrics and checkpoints written before it stay. [`Failure::Stopped`] after a signal, with a checkpoint.
pub fn distill(asked: &Options, mode: &Mode, mut startup: Startup) -> Result<(), Failure> {
    let stop = Stop::install()?;
    log::hold();
    match mode.place.rank {
        0 => stop.answer()?,
        _ => notes::silence(),
    }
    startup.end("arguments");
    let ranks = Ranks::rendezvous(mode.place.clone(), &stop)?;
    let ended = run(asked, mode, startup, &stop, &ranks);
    rank_end::ended(&ranks, ended)
}

/// The run of one rank. Rank 0 has the output directory; the others write what they have of checkpoints, and nothing else.
fn run(asked: &Options, mode: &Mode, mut startup: Startup, stop: &Stop, ranks: &Ranks) -> Result<(), Failure> {
    let opened = open(asked, mode, &mut startup, stop, ranks)?;
    let ready = ready(opened, mode.placement, &mut startup, stop, ranks)?;
    Running::begin(ready, startup, stop, ranks)?.steps().write()
}

/// Makes every check of a run that needs no device: of its output directory, its models, its data and, to resume, its
/// checkpoint. Writes nothing.
///
/// # Errors
/// [`Failure`], as the run itself.
pub fn check(asked: &Options, mode: &Mode) -> Result<(), Failure> {
    let share = Ranks::of(&mode.place).share(1);
    let config = asked.resolve(Purpose::Run, share, None)?;
    config.data_request()?;
    let inputs: Vec<&Path> = mode.config_file.as_deref().into_iter().chain(config.inputs()).collect();
    refuse_inputs(&config.out, &inputs)?;
    let is_there = mode.start == Start::Resume || config.out.exists();
    let out = if is_there { Some(Out::claim(&config.out, mode.start, &inputs)?) } else { None };
    let continued = out.as_ref().filter(|_| mode.start == Start::Resume);
    let resumed = continued.map(|out| Resumed::open(out, &config)).transpose()?;
    let config = asked.resolve(Purpose::Run, share, resumed.as_ref().map(|resumed| resumed.saved.state.before()))?;
    let models = RunModels::open(&config)?;
    take_stop_token(&config, &models.models)?;
    let data = read_data(&config, &models)?;
    let corpus = &data.streams.corpus;
    note_of_turns(&models.models.student, models.adapter.as_ref(), corpus);
    let ahead = data.streams.read_ahead()?;
    let summaries = data.streams.count()?;
    let summary = summaries.total();
    let news = if ahead.is_none() { summary.note(corpus.chunk) } else { None };
    news.into_iter().for_each(notes::note);
    let config = over(config, Some(&summaries))?;
    say!("data     {}: {summary}", corpus.what());
    corpus.ends().iter().for_each(|ends| say!("ends     {ends}"));
    say!("steps    {}", config.passes(Some(&summaries)));
    let mut digests = ModelDigests::start(&models);
    if let Some(cache) = &models.cache {
        covered::check(cache, &config, &data, || Ok(corpus.digest()?))?;
    }
    let before = resumed.as_ref().map(|resumed| &resumed.record);
    Teacher::open(&config, models.models.teacher.as_ref(), &mut digests, before, &Stop::default())?;
    let Some(mut resumed) = resumed else { return Ok(()) };
    resumed.compare_steps(asked, &config);
    let mut identity = Identity::new(&config, &data, &models);
    let cublas = device::cublas(config.arithmetic.gemm, config.target.device)?;
    identity.cublas(cublas.map(|cublas| cublas.version()));
    identity.tuned(Tuning::read(&config.tuning)?.map(|tuning| tuning.digest));
    identity.data(corpus.digest()?);
    identity.models(&digests.weights.get()?);
    resumed.compare(&identity)?;
    resumed.check_left(&config, data.held_out.as_ref().map(|data| held_out::sha256(data, &config)))
}
