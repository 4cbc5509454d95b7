//! SIGHUP, SIGINT, SIGQUIT and SIGTERM: the first is a request, the second ends the process at once.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use precast_fatbins::shell::quoted;
use signal_hook::flag;

use super::signal::Signal;
use crate::error::Failure;

/// How often a wait looks for a signal.
const LOOK: Duration = Duration::from_millis(20);

/// Whether the run has been asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Takes over the signals that this process does not ignore.
    ///
    /// # Errors
    /// [`Failure::Io`] where the system refuses.
    pub fn install() -> Result<Self, Failure> {
        let (stop, again) = (Self::default(), Arc::new(AtomicBool::new(false)));
        for signal in Signal::heeded() {
            let number = signal.number();
            // In this order: the handler that ends the process sees what an earlier signal has set.
            flag::register_conditional_shutdown(number, signal.exit_code().into(), Arc::clone(&again))
                .and_then(|_| flag::register(number, Arc::clone(&again)))
                .and_then(|_| flag::register_usize(number, Arc::clone(&stop.0), number as usize))
                .map_err(Failure::io("take over", signal.name()))?;
        }
        Ok(stop)
    }

    /// The signal that came.
    pub fn requested(&self) -> Option<Signal> {
        Signal::of_number(self.0.load(Ordering::Relaxed) as i32)
    }

    /// Ends a start-up that was asked to stop: nothing is written yet.
    ///
    /// # Errors
    /// [`Failure::Stopped`].
    pub fn check(&self) -> Result<(), Failure> {
        match self.requested() {
            None => Ok(()),
            Some(signal) => Err(Failure::Stopped { signal, done: "before the first step".to_owned() }),
        }
    }

    /// Does a part of a start-up that may take minutes and cannot be asked to stop, tokenizing for one, on a thread of its
    /// own. A signal ends the wait for it; the thread ends with the process. So it must write nothing.
    ///
    /// # Errors
    /// [`Failure::Stopped`], or [`Failure::Io`] where the system gives no thread.
    pub fn unless_stopped<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        let (done, result) = mpsc::channel();
        let send = move || drop(done.send(work()));
        let thread = thread::Builder::new().spawn(send).map_err(Failure::io("start", "a thread"))?;
        loop {
            match result.recv_timeout(LOOK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => self.check()?,
                // It has sent nothing and never will: it panicked.
                Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().expect_err("it sends what it did")),
            }
        }
    }
}

/// The command that continues this process's run, to be pasted into a shell.
pub fn resume_command() -> String {
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let kept = arguments.filter(|argument| argument != "--overwrite" && argument != "--resume");
    kept.chain(["--resume".to_owned()]).map(|argument| quoted(&argument)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for_until_a_signal_comes() {
        let stop = Stop::default();
        assert_eq!(stop.unless_stopped(|| 1).unwrap(), 1);
        stop.0.store(Signal::Terminate.number() as usize, Ordering::Relaxed);
        // Nobody ever sends: without the signal this would not end.
        let (_keep, never) = mpsc::channel::<()>();
        let stopped = stop.unless_stopped(move || never.recv());
        assert!(matches!(stopped, Err(Failure::Stopped { signal: Signal::Terminate, .. })));
    }
}
