//! Ends one of several ranks: with its own failure, or with that of another rank, if that came first.

use std::io::ErrorKind;
use std::time::Duration;

use precast_runtime::DriverError;

use crate::base::io::IoError;
use crate::inputs::checkpoint::CheckpointError;
use crate::ranks::{RankError, Ranks};
use crate::run::failure::Failure;

/// A rank whose device has failed waits so long for the report of another one that failed first.
const REPORT: Duration = Duration::from_secs(5);

/// Reports to the others how the run ended here. Where another rank failed first, that is why this one ends.
///
/// # Errors
/// The run's own [`Failure`], or that of another rank, if that came first.
pub fn ended<T>(ranks: &Ranks, result: Result<T, Failure>) -> Result<T, Failure> {
    let result = match result {
        Err(failure) if !is_of_rank(&failure) => Err(cause(ranks, failure)),
        other => other,
    };
    match &result {
        Ok(_) => ranks.leave(),
        // All of them stop alike.
        Err(Failure::Stopped(_)) if ranks.all_stop() => ranks.leave(),
        Err(failure) if is_of_rank(failure) => {}
        Err(failure) => ranks.fail(failure.exit_code(), failure.to_string()),
    }
    result
}

/// Returns the failure of another rank, if that came first and caused this one.
pub fn cause(ranks: &Ranks, failure: Failure) -> Failure {
    if matches!(failure, Failure::Stopped(_)) {
        return failure;
    }
    let first = ranks.first_failure(if may_be_of_another(&failure) { REPORT } else { Duration::ZERO });
    first.map_or(failure, Failure::from)
}

/// True if all ranks know of a failure.
fn is_of_rank(failure: &Failure) -> bool {
    matches!(failure, Failure::Rank(RankError::Failed { .. }))
}

/// True if a failure looks like the end of a peer: its memory is gone while this rank's device copies from it, its
/// connection, or the directory in which both were writing a checkpoint.
fn may_be_of_another(failure: &Failure) -> bool {
    match failure {
        Failure::Driver(DriverError::Exchange { .. } | DriverError::Call { .. }) => true,
        Failure::Rank(RankError::Io(_)) => true,
        Failure::Step(step) => may_be_of_another(&step.error),
        Failure::Io(IoError { error, .. }) | Failure::Checkpoint(CheckpointError::Io { error, .. }) => {
            error.kind() == ErrorKind::NotFound
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;
    use std::thread;

    use super::*;
    use crate::ranks::tests::rank;
    use crate::run::out::{Out, Start};

    /// A device that copies from memory of a process that has just been killed may fail before that process's
    /// connection closes.
    #[test]
    fn a_device_that_fails_for_a_lost_peer_is_no_own_failure() {
        let (ranks, peer) = rank();
        let closing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(peer);
        });
        let name = "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned();
        let failure = DriverError::Call { call: "cuEventSynchronize", code: 700, name, context: String::new() };
        let cause = cause(&ranks, failure.into()).to_string();
        assert!(cause.starts_with("rank 1 of 2 failed: its connection is closed"), "{cause}");
        closing.join().unwrap();
        ranks.leave();
    }

    #[test]
    fn a_rank_reports_its_own_failure_with_its_exit_code() {
        let (ranks, mut peer) = rank();
        let reading = thread::spawn(move || {
            let mut frames = Vec::new();
            peer.read_to_end(&mut frames).unwrap();
            String::from_utf8_lossy(&frames).into_owned()
        });
        let failure = ended::<()>(&ranks, Err(Failure::usage("no data"))).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        let report = reading.join().unwrap();
        assert!(report.contains(r#""exit_code":2,"reason":"no data""#), "{report}");
    }

    #[test]
    fn a_checkpoint_that_a_peer_gave_up_is_no_own_failure() {
        let failure = |kind: ErrorKind| Failure::io("write", "out/.precast-aside-checkpoint-2-abc123")(kind.into());
        assert!(may_be_of_another(&failure(ErrorKind::NotFound)));
        assert!(!may_be_of_another(&failure(ErrorKind::StorageFull)));
        assert!(!may_be_of_another(&Failure::usage("")));
    }

    #[test]
    fn a_connection_that_a_peer_has_closed_is_no_own_failure() {
        assert!(may_be_of_another(&RankError::Io("cannot receive rows from rank 1".to_owned()).into()));
    }

    #[test]
    fn an_output_directory_that_cannot_be_is_no_failure_of_another() {
        // Nothing can be created there, and the system says that it is not found.
        let refused = Failure::from(Out::claim(Path::new("/proc/out"), Start::Fresh, &[]).unwrap_err());
        assert_eq!(refused.to_string(), "cannot create /proc/out: No such file or directory (os error 2)");
        assert!(!may_be_of_another(&refused));
    }
}
