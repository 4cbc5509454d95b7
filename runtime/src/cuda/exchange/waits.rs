//! Measures a stream's waits for another one, by the device's clock.

use std::collections::VecDeque;
use std::ptr::null_mut;

use cudarc::driver::sys;

use crate::cuda::call::check;
use crate::cuda::timer::Timer;
use crate::driver::DriverError;

/// A point on a stream.
pub(in crate::cuda) struct Event(sys::CUevent);

impl Event {
    pub fn new() -> Result<Self, DriverError> {
        let mut event = null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Self(event))
    }

    /// Records the end of everything queued on a stream so far. An event may be recorded again.
    pub fn record(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: both live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.0, stream) })
    }

    /// Orders a stream's next work after the event's last record.
    pub fn wait(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: both live.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, self.0, 0) })
    }

    /// Waits until a stream has come to the event's last record.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the handle is live.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.0) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle was made by this value; a destroyed event that is recorded is freed once it passes.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// Waits of a stream.
#[derive(Default)]
pub(in crate::cuda) struct Waits {
    free: Vec<Timer>,
    under_way: VecDeque<Timer>,
    seconds: f64,
}

impl Waits {
    /// Makes a stream wait for an event, and times the wait.
    pub fn wait(&mut self, stream: sys::CUstream, event: &Event) -> Result<(), DriverError> {
        self.seconds()?;
        let timer = self.free.pop().map_or_else(Timer::new, Ok)?;
        timer.start(stream)?;
        event.wait(stream)?;
        timer.mark(stream)?;
        self.under_way.push_back(timer);
        Ok(())
    }

    /// Returns the total time of finished waits, seconds.
    pub fn seconds(&mut self) -> Result<f64, DriverError> {
        while let Some(seconds) = self.under_way.front().map(Timer::elapsed).transpose()?.flatten() {
            self.seconds += seconds;
            self.free.extend(self.under_way.pop_front());
        }
        Ok(self.seconds)
    }
}
