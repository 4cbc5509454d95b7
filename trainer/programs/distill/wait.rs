//! Parts of a start-up that may take minutes and cannot be asked to stop, tokenizing for one.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use precast_system::progress::Wait;

use crate::base::io::IoError;
use crate::base::stop::Stop;
use crate::run::failure::Failure;

/// A wait looks for a signal as often.
const LOOK: Duration = Duration::from_millis(20);

/// Does such a part, of this name, on a thread of its own. A signal ends the wait for it; the thread ends with the
/// process. So it must write nothing.
///
/// # Errors
/// [`Failure::Stopped`], or [`Failure::Io`] where the system gives no thread.
pub fn unless_stopped<T: Send + 'static>(
    stop: &Stop,
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let mut wait = Wait::start(what);
    let (done, result) = mpsc::channel();
    let send = move || drop(done.send(work()));
    let thread = thread::Builder::new().spawn(send).map_err(IoError::of("start", "a thread"))?;
    loop {
        match result.recv_timeout(LOOK) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => {
                stop.check()?;
                wait.goes_on();
            }
            // It has sent nothing and never will: it panicked.
            Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().expect_err("it sends what it did")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::signal::Signal;
    use crate::base::stop::Stopped;

    #[test]
    fn work_is_waited_for_until_a_signal_comes() {
        let stop = Stop::default();
        assert_eq!(unless_stopped(&stop, "one", || 1).unwrap(), 1);
        stop.ask(Signal::Terminate);
        // Nobody ever sends: without the signal this would not end.
        let (_keep, never) = mpsc::channel::<()>();
        let stopped = unless_stopped(&stop, "nothing", move || never.recv());
        assert!(matches!(stopped, Err(Failure::Stopped(Stopped { signal: Signal::Terminate, .. }))));
    }
}
