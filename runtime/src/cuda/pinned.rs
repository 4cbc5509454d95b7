//! Pinned host memory that device memory is spilled to.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use cudarc::driver::sys;

use super::call::check;
use crate::driver::DriverError;
use crate::host;

/// One allocation of pinned memory.
pub(super) struct Pinned {
    memory: NonNull<c_void>,
    bytes: u64,
}

impl Pinned {
    pub fn new(bytes: usize) -> Result<Self, DriverError> {
        let mut memory = null_mut();
        // SAFETY: writes one address.
        let allocated = unsafe { sys::cuMemHostAlloc(&mut memory, bytes, 0) };
        if allocated == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let available = host::memory().map(|host| host.available);
            return Err(DriverError::OutOfHostMemory { asked: bytes as u64, taken: 0, available });
        }
        check("cuMemHostAlloc", allocated)?;
        Ok(Self { memory: NonNull::new(memory).expect("a successful allocation is not null"), bytes: bytes as u64 })
    }

    /// Returns the address of a range, which begins at `start`.
    fn at(&self, (start, bytes): (u64, u64)) -> *mut c_void {
        assert!(
            start.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {start} are not pinned"
        );
        // SAFETY: inside of the allocation.
        unsafe { self.memory.as_ptr().byte_add(start as usize) }
    }

    /// Copies a range from device memory, in order with the stream.
    pub fn spill(&self, stream: sys::CUstream, address: u64, range: (u64, u64)) -> Result<(), DriverError> {
        // SAFETY: the range is pinned until the stream is idle; only work of this stream touches it.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(self.at(range), address, range.1 as usize, stream) };
        check("cuMemcpyDtoHAsync", copied)
    }

    /// Copies a range to device memory, in order with the stream.
    pub fn fetch(&self, stream: sys::CUstream, address: u64, range: (u64, u64)) -> Result<(), DriverError> {
        // SAFETY: the range is pinned until the stream is idle; only work of this stream touches it.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(address, self.at(range), range.1 as usize, stream) };
        check("cuMemcpyHtoDAsync", copied)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by this value; the stream that used it is idle.
        let _ = unsafe { sys::cuMemFreeHost(self.memory.as_ptr()) };
    }
}
