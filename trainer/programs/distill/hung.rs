//! A run whose device hangs: it ends, and `run.json` says why.

use std::path::Path;
use std::thread;

use signal_hook::low_level;

use crate::base::startup_times::Startup;
use crate::device::session::Session;
use crate::device::watch::{Hang, LAST_WORDS};
use crate::ranks::Ranks;
use crate::run::failure::Failure;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::out::Out;
use crate::run::outcome::{Outcome, Status};
use crate::run::rank_end;
use crate::run::record::{RECORD, RunRecord};

/// Has a hang of the device end the run of all ranks.
pub(super) fn watch(session: &mut Session, out: Option<&Out>, ranks: &Ranks) {
    let path = out.and_then(|out| std::path::absolute(out.path()).ok());
    let ranks = ranks.clone();
    session.watch.on_hang(move |hang| end(&ranks, Hang { ranks: Some(ranks.count()), ..hang }, path.as_deref()));
}

/// Ends the process of a run whose device hangs, and with it all ranks.
fn end(ranks: &Ranks, hang: Hang, out: Option<&Path>) {
    let failure = rank_end::ended::<()>(ranks, Err(Box::new(hang).into())).expect_err("it has failed");
    match (&failure, out) {
        // Before it is said: nobody may read that.
        (Failure::Hung(hang), Some(out)) if hang.step.is_some() => _ = record(hang, out),
        (Failure::Hung(_), _) => {}
        // Another rank has failed first: this one's waits end, and it says so itself.
        _ => thread::sleep(LAST_WORDS / 2),
    }
    failure.tell();
    low_level::exit(failure.exit_code().into());
}

/// Writes into `run.json` why a run has ended, if it had begun. The process that hangs has the directory.
fn record(hang: &Hang, out: &Path) -> Result<(), Failure> {
    if !out.join(RECORD).exists() {
        return Ok(());
    }
    let mut record = RunRecord::read(out)?;
    let records = Metrics::read(&out.join(METRICS))?.records;
    let elapsed_s = Startup::default().elapsed_s();
    record.outcome = Some(Outcome::new(Status::Failed, Some(hang.to_string()), &records, elapsed_s));
    Ok(record.write(out)?)
}
