//! Links of a GPU, as NVML counts them: the driver's management library, which comes with the driver.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys;
use libloading::Library;

const LIBRARY: &str = "libnvidia-ml.so.1";
/// More than any GPU has.
const MOST_LINKS: c_uint = 64;
const SUCCESS: c_int = 0;

/// How many NVLinks of a GPU are up; none where that cannot be asked.
pub(super) fn count(gpu: sys::CUdevice) -> Option<u32> {
    let mut bus = [0 as c_char; 32];
    // SAFETY: writes at most so many bytes, a NUL among them.
    if unsafe { sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as c_int, gpu) } != sys::CUresult::CUDA_SUCCESS {
        return None;
    }
    // SAFETY: the library's initializers have no preconditions, and it outlives the calls. Each function has the type that nvml.h
    // declares; the handle is NVML's own, between init and shutdown.
    unsafe {
        let library = Library::new(LIBRARY).ok()?;
        let init: unsafe extern "C" fn() -> c_int = *library.get(b"nvmlInit_v2\0").ok()?;
        let shutdown: unsafe extern "C" fn() -> c_int = *library.get(b"nvmlShutdown\0").ok()?;
        let handle_of: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int =
            *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?;
        let link_state: unsafe extern "C" fn(*mut c_void, c_uint, *mut c_int) -> c_int =
            *library.get(b"nvmlDeviceGetNvLinkState\0").ok()?;
        if init() != SUCCESS {
            return None;
        }
        let mut handle = null_mut();
        let found = handle_of(bus.as_ptr(), &mut handle) == SUCCESS;
        let is_up = |link: &c_uint| {
            let mut state = 0;
            link_state(handle, *link, &mut state) == SUCCESS && state != 0
        };
        let count = found.then(|| (0..MOST_LINKS).filter(is_up).count() as u32);
        shutdown();
        count
    }
}
