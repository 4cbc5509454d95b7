//! Converts driver results to errors.

use std::ffi::CStr;
use std::fmt::Display;

use cudarc::driver::sys;

use crate::driver::DriverError;

/// Checks the result of a call.
pub(crate) fn check(call: &'static str, result: sys::CUresult) -> Result<(), DriverError> {
    check_with(call, result, String::new)
}

/// Checks the result of a call, naming its object on failure.
pub(crate) fn check_on(call: &'static str, result: sys::CUresult, on: &dyn Display) -> Result<(), DriverError> {
    check_with(call, result, || format!(" on {on}"))
}

/// Checks the result of a call, with a context computed on failure.
pub(crate) fn check_with(
    call: &'static str,
    result: sys::CUresult,
    context: impl FnOnce() -> String,
) -> Result<(), DriverError> {
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
