//! Allows one open device per process.

use std::sync::{Mutex, PoisonError};

use crate::driver::DriverError;

/// State of the right to load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Taken,
    /// Nobody, ever again.
    Spent,
}

static STATE: Mutex<State> = Mutex::new(State::Free);

/// Sets the state if it may be `from`; returns the one before.
fn exchange(from: State, to: State) -> State {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = *state;
    if before == from {
        *state = to;
    }
    before
}

/// The right to have a device open, returned on drop: while one driver value is sealed and its kernels run, a second
/// could load modules. Several GPUs take as many processes.
pub(crate) struct Sole(());

impl Sole {
    /// # Errors
    /// [`DriverError::InUse`] if another value holds it, [`DriverError::Loaded`] if it was spent.
    pub fn take() -> Result<Self, DriverError> {
        match exchange(State::Free, State::Taken) {
            State::Free => Ok(Self(())),
            State::Taken => Err(DriverError::InUse),
            State::Spent => Err(DriverError::Loaded),
        }
    }

    /// Gives the right to nobody any more: kernels may run as long as the process does.
    pub fn spend(self) {
        exchange(State::Taken, State::Spent);
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        exchange(State::Taken, State::Free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, for the state is the process's.
    #[test]
    fn a_second_one_waits_for_the_first_to_be_dropped() {
        let first = Sole::take().unwrap();
        assert_eq!(Sole::take().err(), Some(DriverError::InUse));
        // A refused attempt releases nothing.
        assert_eq!(Sole::take().err(), Some(DriverError::InUse));
        drop(first);
        drop(Sole::take().unwrap());
        Sole::take().unwrap().spend();
        assert_eq!(Sole::take().err(), Some(DriverError::Loaded));
        assert_eq!(Sole::take().err(), Some(DriverError::Loaded));
    }
}
