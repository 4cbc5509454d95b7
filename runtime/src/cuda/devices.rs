//! Devices of this machine, as the driver describes them.

use cudarc::driver::sys;
use precast_core::chips::Clocks;

use super::call::check;
use super::nvml::{BusId, Nvml};
use super::{environment, memory};
use crate::driver::{Device, DriverError};

/// Oldest CUDA version of a driver, as `cuDriverGetVersion` counts: that of the 580 series, for whose loader the
/// kernels are compiled.
const LEAST_DRIVER: i32 = 13000;

/// True if this machine has a driver. cudarc panics without one, so ask first.
pub fn is_present() -> bool {
    // SAFETY: loading libcuda runs its initializers, which have no preconditions.
    unsafe { sys::is_culib_present() }
}

/// Returns the number of GPUs that the driver sees.
///
/// # Errors
/// Those of [`Cuda::open`](super::Cuda::open).
pub fn count() -> Result<u32, DriverError> {
    start()?;
    let mut count = 0;
    // SAFETY: writes one integer.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    if count == 0 { Err(no_gpu()) } else { Ok(count as u32) }
}

/// Link between two GPUs of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Ordinals of the two GPUs.
    pub gpus: (u32, u32),
    /// True if one can read the other's memory; else bytes go through the host.
    pub direct: bool,
    /// The driver's performance rank, 0 the best.
    pub rank: i32,
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { gpus: (a, b), direct, rank } = self;
        if *direct { write!(f, "{a}-{b} direct, rank {rank}") } else { write!(f, "{a}-{b} through the host") }
    }
}

/// Returns the links of the first GPU to each other one. Initializes the driver.
///
/// # Errors
/// Those of [`count`].
pub fn links() -> Result<Vec<Link>, DriverError> {
    use sys::CUdevice_P2PAttribute as Attribute;
    let others = 1..count()?;
    let attribute = |which: Attribute, other: u32| {
        let mut value = 0;
        // SAFETY: writes one integer; both are numbers of devices.
        let result = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, which, 0, other as i32) };
        check("cuDeviceGetP2PAttribute", result).map(|()| value)
    };
    let link = |other: u32| {
        let direct = attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, other)? != 0;
        Ok(Link {
            gpus: (0, other),
            direct,
            rank: attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, other)?,
        })
    };
    others.map(link).collect()
}

/// Returns the number of active NVLinks of each GPU; none if NVML cannot tell.
///
/// # Errors
/// Those of [`count`].
pub fn nvlinks() -> Result<Vec<Option<u32>>, DriverError> {
    let up = |gpu| BusId::of(gpu as sys::CUdevice).and_then(|bus| Nvml::open(&bus)).ok().map(|nvml| nvml.links());
    Ok((0..count()?).map(up).collect())
}

/// Returns the handle of a device. Initializes the driver.
///
/// # Errors
/// Those of [`count`], or [`DriverError::NoDevice`].
pub(crate) fn find(ordinal: u32) -> Result<sys::CUdevice, DriverError> {
    let (count, mut handle) = (count()?, 0);
    if ordinal >= count {
        return Err(DriverError::NoDevice { ordinal, count });
    }
    // SAFETY: writes one handle.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut handle, ordinal as i32) })?;
    Ok(handle)
}

/// Checks the environment, then initializes the driver and checks its version and eager loading.
pub(crate) fn start() -> Result<(), DriverError> {
    environment::check(|name| std::env::var_os(name))?;
    if is_present() { initialize() } else { Err(DriverError::NoDriver) }
}

fn initialize() -> Result<(), DriverError> {
    let (mut version, mut mode) = (0, sys::CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING);
    // SAFETY: each call writes to a variable of the type it takes; the first one needs no initialized driver.
    unsafe {
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
        if version < LEAST_DRIVER {
            return Err(DriverError::OldDriver { takes: cuda_version(version) });
        }
        let initialized = sys::cuInit(0);
        if initialized == sys::CUresult::CUDA_ERROR_NO_DEVICE {
            return Err(no_gpu());
        }
        check("cuInit", initialized)?;
        check("cuModuleGetLoadingMode", sys::cuModuleGetLoadingMode(&mut mode))?;
    }
    match mode {
        sys::CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING => Ok(()),
        sys::CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING => Err(DriverError::Lazy),
    }
}

fn no_gpu() -> DriverError {
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    DriverError::NoGpu { visible: visible.map(|value| value.to_string_lossy().into_owned()) }
}

/// Splits 13000 into (13, 0).
fn cuda_version(version: i32) -> (u32, u32) {
    (version as u32 / 1000, version as u32 % 1000 / 10)
}

/// Describes a device. A context is current.
pub(crate) fn describe(ordinal: u32, handle: sys::CUdevice) -> Result<Device, DriverError> {
    use sys::CUdevice_attribute as Attribute;
    let attribute = |which: Attribute| {
        let mut value = 0;
        // SAFETY: writes one integer.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, handle) })?;
        Ok::<u32, DriverError>(value as u32)
    };
    let mut name = [0u8; 128];
    let mut version = 0;
    // SAFETY: each call writes to a variable, or at most 127 bytes of the name and its NUL.
    unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, handle))?;
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
    }
    let integrated = attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0;
    let (free_bytes, total_bytes) = memory::free_and_total(integrated)?;
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(Device {
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
        ordinal: format!("cuda:{ordinal}"),
        compute_capability: Some((major, minor)),
        driver_version: Some(cuda_version(version)),
        total_bytes,
        free_bytes,
        integrated,
        clocks: Clocks {
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            core_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            bus_bits: attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        },
        rows: None,
    })
}
