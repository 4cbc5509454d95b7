//! The end of a run: whether it worked, and what its files say of that.

use crate::config::RunConfig;
use crate::error::Failure;
use crate::metrics;
use crate::outcome::{self, Outcome, Status};
use crate::record::RunRecord;
use crate::report;
use crate::startup::Startup;

/// Refuses a run whose steps do not show that it worked.
pub(super) fn check(config: &RunConfig) -> Result<(), Failure> {
    Ok(outcome::check(&metrics::read(&config.out.join("metrics.jsonl"))?)?)
}

/// Writes into `run.json` and `report.html` how a run ended. Its own failure says more than one of writing that.
pub(super) fn tell(
    config: &RunConfig,
    record: &mut RunRecord,
    startup: &Startup,
    ended: Result<(), Failure>,
) -> Result<(), Failure> {
    let status = if ended.is_ok() { Status::Done } else { Status::Failed };
    let reason = ended.as_ref().err().map(ToString::to_string);
    let told = metrics::read(&config.out.join("metrics.jsonl")).and_then(|steps| {
        record.outcome(&Outcome::new(status, reason, &steps, startup.elapsed_s()));
        record.write(&config.out)?;
        report::write(&config.out)
    });
    ended.and(told)
}
