//! SIGHUP, SIGINT, SIGQUIT and SIGTERM: the first is a request, answered at once; the second ends the process.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use precast_core::shell::quoted;
use precast_system::files;
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use super::phase::{Phase, Promise};
use super::signal::Signal;
use crate::base::io::IoError;
use crate::base::notes::{is_silent, tell};

/// A signal asked the run to stop, and it did.
#[derive(Clone, Debug, thiserror::Error)]
#[error("stopped by {} {done}", signal.name())]
pub struct Stopped {
    pub signal: Signal,
    /// Place at which it stopped, and the way to go on.
    pub done: String,
}

/// The request to stop, if it came, and the phase that it came in.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
    /// Locked while it is decided whether this step is the last, so that an answer names the right one.
    phase: Arc<Mutex<Phase>>,
}

impl Stop {
    /// Takes over the signals that this process does not ignore.
    ///
    /// # Errors
    /// [`IoError`] where the system refuses.
    pub fn install() -> Result<Self, IoError> {
        let (stop, again) = (Self::default(), Arc::new(AtomicBool::new(false)));
        for signal in Signal::heeded() {
            let number = signal.number();
            // In this order: the handler that ends the process sees what an earlier signal has set.
            flag::register_conditional_shutdown(number, signal.exit_code().into(), Arc::clone(&again))
                .and_then(|_| flag::register(number, Arc::clone(&again)))
                .and_then(|_| flag::register_usize(number, Arc::clone(&stop.signal), number as usize))
                .map_err(IoError::of("take over", signal.name()))?;
        }
        Ok(stop)
    }

    /// Answers the first signal, from a thread: a step may take minutes. Behind [`Self::install`], whose handlers a
    /// signal comes to first.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn answer(&self) -> Result<(), IoError> {
        let phase = Arc::clone(&self.phase);
        at_first_signal(move |signal| {
            let answer = lock(&phase).answer(signal);
            tell_at_terminal(&answer);
        })
    }

    /// The signal that came.
    pub fn requested(&self) -> Option<Signal> {
        Signal::of_number(self.signal.load(Ordering::Relaxed) as i32)
    }

    /// Ends a start-up that was asked to stop: nothing is written yet.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn check(&self) -> Result<(), Stopped> {
        self.requested().map_or(Ok(()), |signal| Err(Stopped { signal, done: "before the first step".to_owned() }))
    }

    /// Ends the start-up: from here on a signal lets a run that has done so many steps finish the next one.
    ///
    /// # Errors
    /// As [`Self::check`], for the last time.
    pub fn begin(&self, done: u64, promise: Promise) -> Result<(), Stopped> {
        let mut phase = lock(&self.phase);
        self.check()?;
        *phase = if done < promise.steps { Phase::Step(done + 1, promise) } else { Phase::End(promise) };
        Ok(())
    }

    /// The signal that came before this moment, the last one at which it ends the run after the current step. Among
    /// several ranks, others may have had one before.
    pub fn close(&self, ranks: u32) -> Option<Signal> {
        let mut phase = lock(&self.phase);
        let asked = self.requested();
        if let (None, Phase::Step(step, promise)) = (asked, *phase) {
            *phase = if ranks > 1 { Phase::Agree(step, promise) } else { after(step, promise) };
        }
        asked
    }

    /// No step follows the one that is done: the end of the run comes.
    pub fn end(&self) {
        let mut phase = lock(&self.phase);
        if let Phase::Step(_, promise) | Phase::Agree(_, promise) = *phase {
            *phase = Phase::End(promise);
        }
    }

    /// Nobody was asked to stop: the next step begins, or the end of the run.
    pub fn go_on(&self) {
        let mut phase = lock(&self.phase);
        if let Phase::Agree(step, promise) = *phase {
            *phase = after(step, promise);
        }
    }
}

fn after(step: u64, promise: Promise) -> Phase {
    if step < promise.steps { Phase::Step(step + 1, promise) } else { Phase::End(promise) }
}

fn lock(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a program without steps at the first signal, and says so.
///
/// # Errors
/// [`IoError`] where the system refuses.
pub fn end_at_signal() -> Result<(), IoError> {
    end_at_signal_after(|_| {})
}

/// Ends a program without steps at the first signal, and says so unless another process does. Before it ends,
/// `tell_others` is called.
///
/// # Errors
/// As [`end_at_signal`].
pub fn end_at_signal_after(tell_others: impl FnOnce(Signal) + Send + 'static) -> Result<(), IoError> {
    at_first_signal(|signal| {
        if !is_silent() {
            tell_at_terminal(&ending(signal, files::has_placed()));
        }
        tell_others(signal);
        low_level::exit(signal.exit_code().into());
    })
}

/// The last line of a program without steps.
fn ending(signal: Signal, has_written: bool) -> String {
    format!("{}: ending{}", signal.name(), if has_written { "" } else { ": nothing is written" })
}

/// Does something on a thread of its own once the first signal comes.
fn at_first_signal(work: impl FnOnce(Signal) + Send + 'static) -> Result<(), IoError> {
    let mut signals =
        Signals::new(Signal::heeded().into_iter().map(Signal::number)).map_err(IoError::of("take over", "signals"))?;
    let wait = move || {
        if let Some(signal) = signals.forever().find_map(Signal::of_number) {
            work(signal);
        }
    };
    thread::Builder::new().spawn(wait).map(|_| ()).map_err(IoError::of("start", "a thread"))
}

/// On a terminal the cursor stands behind a bar and the `^C` of whoever has pressed it.
pub(crate) fn tell_at_terminal(line: &str) {
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr());
    }
    tell(line);
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

    impl Stop {
        pub(crate) fn ask(&self, signal: Signal) {
            self.signal.store(signal.number() as usize, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_step_that_is_named_is_the_one_after_which_a_run_stops() {
        let promise = Promise { steps: 4, result: "student", has_checkpoints: true };
        for ranks in [1, 2] {
            let stop = Stop::default();
            let named = || lock(&stop.phase).answer(Signal::Interrupt);
            stop.begin(1, promise).unwrap();
            assert!(named().contains("after step 2, with"), "{}", named());
            // A signal that comes behind this is of the next step, where no other rank has had one.
            assert_eq!(stop.close(ranks), None);
            assert!(
                named().contains(if ranks > 1 { "after step 2 or 3, with" } else { "after step 3, with" }),
                "{}",
                named()
            );
            stop.go_on();
            assert!(named().contains("after step 3, with"), "{}", named());
            stop.ask(Signal::Interrupt);
            assert_eq!(stop.close(ranks), Some(Signal::Interrupt));
            assert!(named().contains("after step 3, with"), "{}", named());
        }
    }

    #[test]
    fn a_run_ends_with_its_last_step_whatever_comes() {
        let promise = Promise { steps: 2, result: "student", has_checkpoints: true };
        let stop = Stop::default();
        let named = || lock(&stop.phase).answer(Signal::Interrupt);
        stop.begin(1, promise).unwrap();
        assert!(named().contains("step 2 is the last"), "{}", named());
        stop.close(1);
        assert!(named().contains("all steps are done"), "{}", named());
        // One that was done before has none left.
        stop.begin(2, promise).unwrap();
        assert!(named().contains("all steps are done"), "{}", named());
        stop.ask(Signal::Hangup);
        assert!(stop.begin(0, promise).is_err());
        // One that ends early has none left, either.
        let early = Stop::default();
        early.begin(0, promise).unwrap();
        early.end();
        assert!(lock(&early.phase).answer(Signal::Interrupt).contains("all steps are done"));
    }

    #[test]
    fn a_program_without_steps_says_what_it_leaves() {
        assert_eq!(ending(Signal::Interrupt, false), "SIGINT: ending: nothing is written");
        assert_eq!(ending(Signal::Hangup, true), "SIGHUP: ending");
    }
}
