//! A device's primary context, and the stream of its work.

use std::ptr::null_mut;

use cudarc::driver::sys;

use super::call::check;
use crate::driver::DriverError;

pub(super) struct Context {
    pub device: sys::CUdevice,
    pub stream: sys::CUstream,
    is_held: bool,
}

impl Context {
    /// Makes the device's context current on this thread.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    pub fn new(device: sys::CUdevice) -> Result<Self, DriverError> {
        let mut context = null_mut();
        // SAFETY: writes one handle.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        let mut own = Self { device, stream: null_mut(), is_held: true };
        // SAFETY: the context stays current on this thread for as long as this value lives; the call writes a handle.
        unsafe {
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            check("cuStreamCreate", sys::cuStreamCreate(&mut own.stream, flags))?;
        }
        Ok(own)
    }

    /// Leaves the context to the end of the process: others may have its memory open.
    pub fn keep(&mut self) {
        self.is_held = false;
    }

    /// Destroys the stream, and releases the context unless it is kept.
    pub fn release(&mut self) {
        // SAFETY: the handles were made by this value and are not used again; the stream is idle.
        unsafe {
            if !self.stream.is_null() {
                let _ = sys::cuStreamDestroy_v2(std::mem::replace(&mut self.stream, null_mut()));
            }
            if std::mem::take(&mut self.is_held) {
                let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.release();
    }
}
