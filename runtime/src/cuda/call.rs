//! Driver results as errors.

use std::ffi::CStr;
use std::fmt::Display;

use cudarc::driver::sys;

use super::memory;
use crate::driver::DriverError;

/// The result of a call.
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<(), DriverError> {
    error(call, result, String::new)
}

/// The result of a call, with what it was made on.
pub(super) fn check_on(call: &'static str, result: sys::CUresult, on: &dyn Display) -> Result<(), DriverError> {
    error(call, result, || format!(" on {on}"))
}

/// The result of a call for which the driver takes memory of its own, to do `what`.
pub(super) fn check_memory(
    call: &'static str,
    result: sys::CUresult,
    what: &dyn Display,
    remedy: &'static str,
) -> Result<(), DriverError> {
    if result != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return error(call, result, || format!(": cannot {what}"));
    }
    let (free, _) = memory::free_and_total(false)?;
    Err(DriverError::OutOfDriverMemory { what: what.to_string(), free, remedy })
}

fn error(call: &'static str, result: sys::CUresult, context: impl FnOnce() -> String) -> Result<(), DriverError> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = std::ptr::null();
    // SAFETY: writes a pointer to a static string, or leaves it null for a code it does not know.
    let known = unsafe { sys::cuGetErrorName(result, &mut name) } == sys::CUresult::CUDA_SUCCESS && !name.is_null();
    // SAFETY: the driver's names are static C strings.
    let name = if known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { "unknown".into() };
    Err(DriverError::Call { call, code: result as u32, name, context: context() })
}
