//! The end of a run: whether it worked, and what its files say of that.

use crate::config::RunConfig;
use crate::error::Failure;
use crate::guard::GuardRecord;
use crate::metrics::{METRICS, Metrics};
use crate::note::note;
use crate::outcome::{self, Outcome, Status};
use crate::record::RunRecord;
use crate::report;
use crate::run::out::Out;
use crate::startup::Startup;

use super::steps::publish_events;

fn metrics(out: &Out) -> Result<Metrics, Failure> {
    Metrics::read(&out.path().join(METRICS))
}

/// Refuses a run whose steps do not show that it worked.
pub(super) fn check(out: &Out) -> Result<(), Failure> {
    Ok(outcome::check(&metrics(out)?.records)?)
}

/// Writes into `run.json` and `report.html` how a run ended. Its own failure says more than one of writing that.
pub(super) fn record(
    config: &RunConfig,
    out: &mut Out,
    record: &mut RunRecord,
    startup: &Startup,
    ended: Result<(), Failure>,
) -> Result<(), Failure> {
    let (status, reason) = match &ended {
        Ok(()) => (Status::Done, None),
        Err(Failure::Stopped { .. }) => (Status::Stopped, None),
        Err(failure) => (Status::Failed, Some(failure.to_string())),
    };
    let write = || {
        let records = metrics(out)?.records;
        let guard = GuardRecord::of(&records);
        record.guard(guard.as_ref());
        record.outcome(&Outcome::new(status, reason, &records, startup.elapsed_s()));
        if let Some(warning) = guard.and_then(|guard| guard.warning()) {
            note(format_args!("warning: {warning}"));
        }
        let html = report::of_run(out.path(), record.value())?;
        out.publish_file(report::REPORT, html.as_bytes(), record)?;
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
    ended.and(written)
}
