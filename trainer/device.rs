//! Opening a device.

use precast_runtime::cuda::{self, Cuda};
use precast_runtime::sim::{Faults, Sim};
use precast_runtime::{Driver, DriverError};

use crate::config::DeviceChoice;

/// A driver of either kind.
pub type AnyDriver = Box<dyn Driver>;

/// Opens a device. `auto` is the first GPU where there is one, else the simulated GPU.
///
/// # Errors
/// [`DriverError`].
pub fn open(choice: DeviceChoice) -> Result<AnyDriver, DriverError> {
    match choice {
        DeviceChoice::Sim => Ok(Box::new(Sim::new(Faults::default()))),
        DeviceChoice::Cuda(ordinal) => Ok(Box::new(Cuda::open(ordinal, false)?)),
        DeviceChoice::Generic(ordinal) => Ok(Box::new(Cuda::open(ordinal, true)?)),
        DeviceChoice::Auto if !cuda::is_present() => open(DeviceChoice::Sim),
        DeviceChoice::Auto => match Cuda::open(0, false) {
            Err(DriverError::NoDevice { .. }) => open(DeviceChoice::Sim),
            // A driver without a usable GPU (error 100 is CUDA_ERROR_NO_DEVICE).
            Err(DriverError::Call { call: "cuInit", code: 100, .. }) => open(DeviceChoice::Sim),
            other => Ok(Box::new(other?)),
        },
    }
}
