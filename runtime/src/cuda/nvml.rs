//! Reads a GPU's state by NVML, the management library of the driver, without a CUDA call.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys;
use libloading::Library;
use precast_system::cause;

use crate::gauge::{GaugeError, Mean, Reading};

const LIBRARY: &str = "libnvidia-ml.so.1";
const SUCCESS: c_int = 0;
/// Upper limit on the NVLinks of a GPU.
const MOST_LINKS: c_uint = 64;
/// `NVML_CLOCK_SM`.
const CLOCK_SM: c_uint = 1;
/// `NVML_TEMPERATURE_GPU`.
const TEMPERATURE_GPU: c_uint = 0;

/// A GPU's PCI address: unlike ordinals, the same for CUDA and NVML under any CUDA_VISIBLE_DEVICES.
#[derive(Clone, Copy)]
pub(super) struct BusId([c_char; 32]);

impl BusId {
    pub fn of(gpu: sys::CUdevice) -> Result<Self, GaugeError> {
        let mut bus = [0; 32];
        // SAFETY: writes at most this many bytes, a NUL among them.
        let result = unsafe { sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as c_int, gpu) };
        check("cuDeviceGetPCIBusId", result as c_int).map(|()| Self(bus))
    }
}

/// The initialized library, and a GPU in it.
pub(super) struct Nvml {
    library: Library,
    gpu: *mut c_void,
}

fn check(call: &'static str, code: c_int) -> Result<(), GaugeError> {
    if code == SUCCESS { Ok(()) } else { Err(GaugeError::Call { call, code: code as u32 }) }
}

/// Looks up a function of the library.
///
/// # Safety
/// `F` is the type that nvml.h declares it with, and is not called once the library is gone.
unsafe fn function<F: Copy>(library: &Library, name: &CStr) -> Result<F, GaugeError> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name.to_bytes_with_nul()) };
    found.map(|function| *function).map_err(|error| GaugeError::Library(cause(&error)))
}

impl Nvml {
    pub fn open(BusId(bus): &BusId) -> Result<Self, GaugeError> {
        // SAFETY: the library's initializers have no preconditions. Each function has the type that nvml.h declares;
        // the handle is NVML's own, between init and shutdown, which is this value's drop.
        unsafe {
            let library = Library::new(LIBRARY).map_err(|error| GaugeError::Library(cause(&error)))?;
            let init: unsafe extern "C" fn() -> c_int = function(&library, c"nvmlInit_v2")?;
            let find: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int =
                function(&library, c"nvmlDeviceGetHandleByPciBusId_v2")?;
            check("nvmlInit_v2", init())?;
            let mut nvml = Self { library, gpu: null_mut() };
            check("nvmlDeviceGetHandleByPciBusId_v2", find(bus.as_ptr(), &mut nvml.gpu))?;
            Ok(nvml)
        }
    }

    /// Returns a property of the GPU; none if the driver or the chip does not know it.
    ///
    /// # Safety
    /// nvml.h declares it to take a device and to write a `T`.
    unsafe fn get<T: Default>(&self, name: &CStr) -> Option<T> {
        let mut value = T::default();
        // SAFETY: the caller's promise; the handle is that of `open`.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_void, *mut T) -> c_int = function(&self.library, name).ok()?;
            (get(self.gpu, &mut value) == SUCCESS).then_some(value)
        }
    }

    /// Like [`Self::get`], for a property that takes an index or enumeration.
    ///
    /// # Safety
    /// nvml.h declares it to take a device and a number or an enumeration, and to write another one.
    unsafe fn get_of(&self, name: &CStr, which: c_uint) -> Option<c_uint> {
        let mut value = 0;
        // SAFETY: the caller's promise; the handle is that of `open`.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int =
                function(&self.library, name).ok()?;
            (get(self.gpu, which, &mut value) == SUCCESS).then_some(value)
        }
    }

    /// Returns the number of active NVLinks.
    pub fn links(&self) -> u32 {
        // SAFETY: it takes a link and writes an nvmlEnableState_t.
        let state = |link| unsafe { self.get_of(c"nvmlDeviceGetNvLinkState", link) };
        (0..MOST_LINKS).filter(|link| state(*link).is_some_and(|state| state != 0)).count() as u32
    }

    /// Returns the current readings.
    pub fn reading(&self) -> Reading {
        // SAFETY: these write, in order, milliwatts; MHz of an nvmlClockType_t; degrees of an nvmlTemperatureSensors_t;
        // an nvmlUtilization_t, which is two percentages, the GPU's first; and a mask of 64 bits.
        unsafe {
            let milliwatts: Option<c_uint> = self.get(c"nvmlDeviceGetPowerUsage");
            let busy: Option<[c_uint; 2]> = self.get(c"nvmlDeviceGetUtilizationRates");
            Reading {
                power_w: Mean::of(milliwatts.map(|power| f64::from(power) / 1e3)),
                sm_clock_mhz: Mean::of(self.get_of(c"nvmlDeviceGetClockInfo", CLOCK_SM).map(f64::from)),
                busy_percent: Mean::of(busy.map(|[gpu, _]| f64::from(gpu))),
                temperature_c: self.get_of(c"nvmlDeviceGetTemperature", TEMPERATURE_GPU),
                throttle: self.get(c"nvmlDeviceGetCurrentClocksThrottleReasons"),
            }
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: its type is that of nvml.h; `open` has initialized the library.
        if let Ok(shutdown) = unsafe { function::<unsafe extern "C" fn() -> c_int>(&self.library, c"nvmlShutdown") } {
            // SAFETY: as above; nothing of this value is used again.
            unsafe { shutdown() };
        }
    }
}
