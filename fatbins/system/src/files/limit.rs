//! Handles this process's file size limit: `ulimit -f`.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Turns a write past the limit into an error of its file, like one to a full disk: SIGXFSZ would end the process
/// without a message. Call once, before the first write.
///
/// # Errors
/// If the system refuses.
pub fn outlive_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(|_| ())
}

/// True if a write failed because its file would have exceeded the limit.
pub fn is_past_limit(error: &io::Error) -> bool {
    error.kind() == ErrorKind::FileTooLarge
}

/// Names the limit if it is the cause, since a file system has a limit too.
pub(super) fn named(error: io::Error) -> io::Error {
    match getrlimit(Resource::Fsize).current {
        Some(most) if is_past_limit(&error) => {
            let what = format!("files of this process may have {most} bytes at most (`ulimit -f`): raise that limit");
            io::Error::new(ErrorKind::FileTooLarge, what)
        }
        _ => error,
    }
}
