//! Times work by the device's clock: two events and the time between them.

use std::ptr::null_mut;

use cudarc::driver::sys;

use super::call::check;
use crate::driver::DriverError;

pub(super) struct Timer {
    start: sys::CUevent,
    stop: sys::CUevent,
}

impl Timer {
    pub fn new() -> Result<Self, DriverError> {
        let mut timer = Self { start: null_mut(), stop: null_mut() };
        for event in [&mut timer.start, &mut timer.stop] {
            let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
            // SAFETY: writes one handle.
            check("cuEventCreate", unsafe { sys::cuEventCreate(event, flags) })?;
        }
        Ok(timer)
    }

    /// Starts the measurement after the stream's work so far.
    pub fn start(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: event and stream are live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.start, stream) })
    }

    /// Ends the measurement after the stream's work so far.
    pub fn mark(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: as above.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.stop, stream) })
    }

    /// Waits for the stream's work so far. Returns the seconds since [`Self::start`].
    pub fn stop(&self, stream: sys::CUstream) -> Result<f64, DriverError> {
        self.mark(stream)?;
        // SAFETY: the event is live.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.stop) })?;
        self.seconds()
    }

    /// Returns the seconds from [`Self::start`] to [`Self::mark`]; none before the device has reached the latter.
    pub fn elapsed(&self) -> Result<Option<f64>, DriverError> {
        // SAFETY: the event is live.
        match unsafe { sys::cuEventQuery(self.stop) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(None),
            result => {
                check("cuEventQuery", result)?;
                self.seconds().map(Some)
            }
        }
    }

    fn seconds(&self) -> Result<f64, DriverError> {
        let mut milliseconds = 0.0f32;
        // SAFETY: writes one float: both events have passed.
        let result = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.start, self.stop) };
        check("cuEventElapsedTime", result)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        for event in [self.start, self.stop].into_iter().filter(|event| !event.is_null()) {
            // SAFETY: the handle was made by this value; a destroyed event that is recorded is freed once it passes.
            let _ = unsafe { sys::cuEventDestroy_v2(event) };
        }
    }
}
