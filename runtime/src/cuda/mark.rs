//! A word of pinned memory in which the device records its progress.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use cudarc::driver::sys;

use super::call::check;
use crate::driver::DriverError;

const NOT_SUPPORTED: u32 = sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as u32;

pub(super) struct Mark {
    pub word: NonNull<u32>,
    /// Address on the device.
    address: sys::CUdeviceptr,
}

impl Mark {
    /// Creates a word that is 0; none if the device's streams cannot write one or no pinned memory is left: a run works
    /// without it.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    pub fn new(stream: sys::CUstream) -> Result<Option<Self>, DriverError> {
        let mut memory: *mut c_void = null_mut();
        // SAFETY: writes one address.
        let allocated = unsafe { sys::cuMemHostAlloc(&mut memory, size_of::<u32>(), sys::CU_MEMHOSTALLOC_DEVICEMAP) };
        if allocated == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Ok(None);
        }
        check("cuMemHostAlloc", allocated)?;
        let word = NonNull::new(memory.cast::<u32>()).expect("a successful allocation is not null");
        let mut mark = Self { word, address: 0 };
        // SAFETY: the word is this value's own, and nothing else knows it yet; the call writes one address.
        unsafe {
            word.write_volatile(0);
            let found = sys::cuMemHostGetDevicePointer_v2(&mut mark.address, memory, 0);
            check("cuMemHostGetDevicePointer", found)?;
        }
        match mark.write(stream, 0) {
            Err(DriverError::Call { code: NOT_SUPPORTED, .. }) => Ok(None),
            written => written.map(|()| Some(mark)),
        }
    }

    /// Writes the word once a stream has finished everything queued so far.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    pub fn write(&self, stream: sys::CUstream, number: u32) -> Result<(), DriverError> {
        // SAFETY: a word of pinned memory, which lives until the stream is idle.
        check("cuStreamWriteValue32", unsafe { sys::cuStreamWriteValue32_v2(stream, self.address, number, 0) })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the memory was taken by this value, and the stream that writes to it is idle.
        let _ = unsafe { sys::cuMemFreeHost(self.word.as_ptr().cast()) };
    }
}
