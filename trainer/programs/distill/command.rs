//! A run, from its options to its end.

use super::Mode;
use super::open::Checked;
use super::ready::ready;
use super::running::Running;
use crate::base::notes;
use crate::base::startup_times::Startup;
use crate::base::stop::Stop;
use crate::options::{Options, RunConfig};
use crate::ranks::Ranks;
use crate::run::failure::Failure;
use crate::run::log;
use crate::run::rank_end;

/// Trains a model, of a teacher if there is one; writes `metrics.jsonl`, `run.json`, `run.log`, `report.html` and
/// `student/` or
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

/// The run of one rank. Rank 0 has the output directory; the others write what they have of checkpoints, and nothing
/// else.
fn run(asked: &Options, mode: &Mode, mut startup: Startup, stop: &Stop, ranks: &Ranks) -> Result<(), Failure> {
    let opened = Checked::of(asked, mode, &mut startup, stop, ranks)?.open(stop)?;
    let ready = ready(opened, mode.placement, &mut startup, stop, ranks)?;
    Running::begin(ready, startup, stop, ranks)?.steps().write()
}

/// Makes every check of a run that needs no device: of its output directory, its models, its data and, to resume, its
/// checkpoint. Writes nothing. Returns the configuration that the run would have.
///
/// # Errors
/// [`Failure`], as the run itself.
pub fn check(asked: &Options, mode: &Mode, mut startup: Startup) -> Result<RunConfig, Failure> {
    let checked = Checked::of(asked, mode, &mut startup, &Stop::default(), &Ranks::of(&mode.place))?;
    checked.say();
    Ok(checked.config)
}
