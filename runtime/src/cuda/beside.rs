//! A second stream, for what runs beside the first.

use std::ptr::null_mut;

use cudarc::driver::sys;

use super::call::check;
use crate::driver::DriverError;

pub(super) struct Beside {
    pub stream: sys::CUstream,
    /// Where the first stream was when the second was to follow it.
    begun: sys::CUevent,
    /// Where the second stream is done.
    done: sys::CUevent,
}

impl Beside {
    pub fn new() -> Result<Self, DriverError> {
        let mut beside = Self { stream: null_mut(), begun: null_mut(), done: null_mut() };
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: each call writes one handle, or two integers.
        unsafe {
            let range = sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest);
            check("cuCtxGetStreamPriorityRange", range)?;
            let kind = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // What moves bytes takes few multiprocessors, and is waited for.
            let made = sys::cuStreamCreateWithPriority(&mut beside.stream, kind, greatest);
            check("cuStreamCreateWithPriority", made)?;
            check("cuEventCreate", sys::cuEventCreate(&mut beside.begun, flags))?;
            check("cuEventCreate", sys::cuEventCreate(&mut beside.done, flags))?;
        }
        Ok(beside)
    }

    /// What comes next on this stream comes after all that the other has been asked for.
    pub fn follow(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: the handles live; an event may be recorded again.
        unsafe {
            check("cuEventRecord", sys::cuEventRecord(self.begun, stream))?;
            check("cuStreamWaitEvent", sys::cuStreamWaitEvent(self.stream, self.begun, 0))
        }
    }

    /// All that this stream has been asked for is what [`Self::join`] waits for.
    pub fn mark(&self) -> Result<(), DriverError> {
        // SAFETY: as above.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.done, self.stream) })
    }

    /// What comes next on the other stream comes after what was marked.
    pub fn join(&self, stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: as above.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, self.done, 0) })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // SAFETY: the handles were made by this value; the stream is idle before they go.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            let _ = sys::cuEventDestroy_v2(self.begun);
            let _ = sys::cuEventDestroy_v2(self.done);
            let _ = sys::cuStreamDestroy_v2(self.stream);
        }
    }
}
