//! The end of a run: whether it worked, and what its files say of that.

use crate::base::note::warn;
use crate::base::roles::Models;
use crate::base::startup::Startup;
use crate::device::session::Session;
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::Checkpoint;
use crate::options::{RunConfig, Settings};
use crate::programs::failure::Failure;
use crate::run::growth;
use crate::run::guard::GuardRecord;
use crate::run::metrics::MetricsFile;
use crate::run::out::Out;
use crate::run::outcome::{self, Fault, Outcome, Status};
use crate::run::record::RunRecord;
use crate::run::report;
use crate::run::report_file::REPORT;
use crate::run::step::guarded;

use super::result::write_result;
use super::steps::publish_events;

/// Writes what a run has trained, unless its steps show that it did not work; where its losses have grown, under another name.
pub(super) fn write(
    config: &RunConfig,
    session: &mut Session,
    (models, adapter): (&Models<Checkpoint>, Option<&Adapter>),
    (out, record): (&mut Out, &mut RunRecord),
    metrics: &MetricsFile,
) -> Result<(), Failure> {
    let records = metrics.records()?;
    outcome::check(&records)?;
    let Settings { lr, warmup, clip, allow_divergence, .. } = config.settings;
    let growth = growth::of(&records, config.objective, models.student.config().vocab).filter(|_| !allow_divergence);
    let name = if growth.is_some() { config.diverged() } else { config.result().to_owned() };
    write_result(&name, config, session, (models, adapter), out, record)?;
    out.remove_replaced()?;
    if let Some(growth) = growth {
        let result = out.path().join(name).display().to_string();
        return Err(Fault::Diverged { growth, lr, warmup, clip, result }.into());
    }
    // Of a part of the run that was not taken as it is.
    if out.path().join(config.diverged()).exists() {
        out.remove(&config.diverged())?;
    }
    Ok(())
}

/// Writes into `run.json` and `report.html` how a run ended. Its own failure says more than one of writing that.
pub(super) fn record(
    config: &RunConfig,
    (out, record): (&mut Out, &mut RunRecord),
    metrics: &mut MetricsFile,
    startup: &Startup,
    ended: Result<(), Failure>,
) -> Result<(), Failure> {
    let (status, reason) = match &ended {
        Ok(()) => (Status::Done, None),
        Err(Failure::Stopped(_)) => (Status::Stopped, None),
        Err(failure) => (Status::Failed, Some(failure.to_string())),
    };
    let write = || {
        let records = metrics.records()?;
        metrics.put_back(|| out.check_claim())?;
        let guard = GuardRecord::of(guarded(&records));
        record.guard(guard.as_ref());
        record.outcome(&Outcome::new(status, reason, &records, startup.elapsed_s()));
        if let Some(warning) = guard.and_then(|guard| guard.warning()) {
            warn(warning);
        }
        let html = report::of_run(out.path(), record.value())?;
        out.publish_file(REPORT, html.as_bytes(), record)?;
        if config.settings.tensorboard {
            publish_events(out, record)?;
        }
        // Last of all: a run without it rewrites its student and its report.
        if status == Status::Done {
            record.reached(config.settings.steps);
            record.result(config.result(), config.settings.steps);
        }
        out.record(record)
    };
    let written = write();
    ended.and(written.map_err(Failure::from))
}
