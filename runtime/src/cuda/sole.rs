//! Allows one open device per process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::DriverError;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The right to have a device open, returned on drop: while one driver value is sealed and its kernels run, a second
/// could load modules. Several GPUs take as many processes.
pub(super) struct Sole(());

impl Sole {
    /// # Errors
    /// [`DriverError::InUse`] if another value holds it.
    pub fn take() -> Result<Self, DriverError> {
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(DriverError::InUse);
        }
        Ok(Self(()))
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_waits_for_the_first_to_be_dropped() {
        let first = Sole::take().unwrap();
        assert_eq!(Sole::take().err(), Some(DriverError::InUse));
        // A refused attempt releases nothing.
        assert_eq!(Sole::take().err(), Some(DriverError::InUse));
        drop(first);
        drop(Sole::take().unwrap());
    }
}
