//! The largest file that this process may write: `ulimit -f`.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Makes a write past the limit an error of its file, as one to a full disk is: SIGXFSZ would end the process without a word. Call
/// once, before anything is written.
///
/// # Errors
/// Where the system refuses.
pub fn outlive_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(|_| ())
}

/// Whether a write failed because its file would have grown past what is allowed.
pub fn is_past_limit(error: &io::Error) -> bool {
    error.kind() == ErrorKind::FileTooLarge
}

/// Names the limit, where that is why a write failed: a file system has one of its own.
pub(super) fn named(error: io::Error) -> io::Error {
    match getrlimit(Resource::Fsize).current {
        Some(most) if is_past_limit(&error) => {
            let what = format!("files of this process may have {most} bytes at most (`ulimit -f`): raise that limit");
            io::Error::new(ErrorKind::FileTooLarge, what)
        }
        _ => error,
    }
}
