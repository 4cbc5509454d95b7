//! Orders what a process does once: devices and modules are opened, then kernels run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::driver::DriverError;

/// State of the right to load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// A device is open.
    Open,
    /// Modules are being loaded beside cudarc.
    Loading,
    /// Modules are loaded into a context, by its address, and none of their kernels has been launched.
    Loaded(usize),
    /// Kernels may run as long as the process does: nobody loads, ever again.
    Launched,
}

static STATE: Mutex<State> = Mutex::new(State::Free);
/// Notified where a load has ended.
static LOADED: Condvar = Condvar::new();
/// True after the first launch beside cudarc, so that later ones take no lock.
static LAUNCHED: AtomicBool = AtomicBool::new(false);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the state when no load is under way.
fn loaded() -> MutexGuard<'static, State> {
    LOADED.wait_while(state(), |state| *state == State::Loading).unwrap_or_else(PoisonError::into_inner)
}

/// The right to load, given back on drop: while one driver value is sealed and its kernels run, a second could load
/// modules. Several GPUs take as many processes.
pub(crate) struct Sole {
    /// State to return to.
    before: State,
}

impl Sole {
    /// Takes the right to open a device.
    ///
    /// # Errors
    /// [`DriverError::InUse`] if another value holds it, [`DriverError::Loaded`] or [`DriverError::Launched`] if
    /// modules are loaded beside cudarc.
    pub fn take() -> Result<Self, DriverError> {
        Self::of(state(), State::Open)
    }

    /// Takes the right to load modules beside cudarc, which others may have loaded before. Waits for a load under way.
    ///
    /// # Errors
    /// [`DriverError::InUse`] if a device is open, [`DriverError::Launched`] after the first launch.
    pub fn beside() -> Result<Self, DriverError> {
        Self::of(loaded(), State::Loading)
    }

    fn of(mut state: MutexGuard<'_, State>, to: State) -> Result<Self, DriverError> {
        match (*state, to) {
            (State::Open | State::Loading, _) => Err(DriverError::InUse),
            (State::Launched, _) => Err(DriverError::Launched),
            (State::Loaded(_), State::Open) => Err(DriverError::Loaded),
            (before, _) => {
                *state = to;
                Ok(Self { before })
            }
        }
    }

    /// Compares the context with the one that holds the modules loaded before.
    ///
    /// # Errors
    /// [`DriverError::OtherModules`] if they differ.
    pub fn admits(&self, context: usize) -> Result<(), DriverError> {
        match self.before {
            State::Loaded(other) if other != context => Err(DriverError::OtherModules),
            _ => Ok(()),
        }
    }

    /// Gives the right to the next load into this context, until the first launch.
    pub fn loaded(mut self, context: usize) {
        self.before = State::Loaded(context);
    }

    /// Ends all loading, before the first launch beside cudarc. Waits for a load under way.
    pub fn launched() {
        if LAUNCHED.load(Ordering::Acquire) {
            return;
        }
        *loaded() = State::Launched;
        LAUNCHED.store(true, Ordering::Release);
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        *state() = self.before;
        LOADED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// One test, for the state is the process's.
    #[test]
    fn loads_come_one_at_a_time_into_one_context_before_the_first_launch() {
        let error = |taken: Result<Sole, DriverError>| taken.err();
        let first = Sole::take().unwrap();
        // A refused attempt releases nothing.
        for _ in 0..2 {
            assert_eq!(error(Sole::take()), Some(DriverError::InUse));
            assert_eq!(error(Sole::beside()), Some(DriverError::InUse));
        }
        drop(first);
        drop(Sole::take().unwrap());

        Sole::beside().unwrap().loaded(1);
        assert_eq!(error(Sole::take()), Some(DriverError::Loaded));
        let second = Sole::beside().unwrap();
        assert_eq!((second.admits(1), second.admits(2)), (Ok(()), Err(DriverError::OtherModules)));
        // A failed load leaves what was loaded before.
        drop(second);
        assert_eq!(error(Sole::take()), Some(DriverError::Loaded));

        // A load, and then a launch, wait for the load under way.
        let waits: [fn(); 2] = [|| Sole::beside().unwrap().loaded(1), Sole::launched];
        for wait in waits {
            let load = Sole::beside().unwrap();
            let (send, done) = mpsc::channel();
            let waiting = thread::spawn(move || {
                wait();
                send.send(()).unwrap();
            });
            let early = done.recv_timeout(Duration::from_millis(50));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it does not wait for a load");
            load.loaded(1);
            waiting.join().unwrap();
        }
        Sole::launched();
        assert_eq!(error(Sole::beside()), Some(DriverError::Launched));
        assert_eq!(error(Sole::take()), Some(DriverError::Launched));
    }
}
