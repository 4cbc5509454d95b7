//! A step that fails: where it did, and how the run goes on.

use precast_runtime::DriverError;

use crate::device::decoding::DecodeError;
use crate::device::session::Session;
use crate::device::watch::{continuation, what};
use crate::inputs::teacher_cache::CacheError;
use crate::run::failure::{Failure, StepFailure};

/// Names the step of a failure of a device, of a draw or of a teacher cache, of the first its phase, and says how the
/// run goes on. `done` steps are done.
pub(super) fn in_step(error: Failure, session: &Session, done: u64) -> Failure {
    let (what, remedy) = match &error {
        Failure::Driver(DriverError::Call { .. }) => {
            let doing = session.activity().unfinished();
            let goes_on = continuation(session.watch.last_checkpoint());
            let remedy = format!(".\nThe system's log (dmesg) has an Xid where the GPU has failed. {goes_on}");
            (what(&doing.phases, doing.step), remedy)
        }
        Failure::Decode(DecodeError::NotFinite { .. }) => (format!("step {}", done + 1), String::new()),
        Failure::Cache(CacheError::Damaged { .. } | CacheError::Rows { .. }) => {
            let goes_on = continuation(session.watch.last_checkpoint());
            (format!("step {}", done + 1), format!(".\n{goes_on}"))
        }
        _ => return error,
    };
    Box::new(StepFailure { what, error, remedy }).into()
}
