//! Runs exchanges and their phases on a side stream.

use std::ptr::null_mut;

use cudarc::driver::sys;

use super::waits::Event;
use crate::cuda::call::check;
use crate::driver::DriverError;

pub(in crate::cuda) struct Beside {
    pub stream: sys::CUstream,
    /// Point of the main stream that this one follows.
    begun: Event,
    /// End of the side stream's phase.
    pub done: Event,
}

impl Beside {
    pub fn new() -> Result<Self, DriverError> {
        let mut beside = Self { stream: null_mut(), begun: Event::new()?, done: Event::new()? };
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: each call writes one handle, or two integers.
        unsafe {
            let range = sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest);
            check("cuCtxGetStreamPriorityRange", range)?;
            let kind = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // Exchanges take few multiprocessors or none, and other work waits for all that runs here: highest
            // priority.
            let made = sys::cuStreamCreateWithPriority(&mut beside.stream, kind, greatest);
            check("cuStreamCreateWithPriority", made)?;
        }
        Ok(beside)
    }

    /// Orders this stream's next work after everything queued on another.
    pub fn follow(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        self.begun.record(stream)?;
        self.begun.wait(self.stream)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // SAFETY: the handle was made by this value; the stream is idle before it goes.
            unsafe {
                let _ = sys::cuStreamSynchronize(self.stream);
                let _ = sys::cuStreamDestroy_v2(self.stream);
            }
        }
    }
}
