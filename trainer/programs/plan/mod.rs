//! `precast plan`: what a run takes, of its device or of an architecture, without loading anything.

mod forms;
mod kernels;
mod report;
mod room;
mod text;

pub use report::Report;

use precast_kernels::Arch;
use precast_runtime::{Device, DriverError, Rows};

use crate::device::host_memory::DeviceMemory;
use crate::device::{self, DeviceError};
use crate::options::{DeviceChoice, RunConfig};
use crate::programs::failure::Failure;
use room::Room;

/// Target of a plan.
#[derive(Debug)]
pub struct Target {
    rows: Rows,
    /// The GPU, where it is one that is there.
    device: Option<Device>,
    /// The memory that the plan is compared with; none of an architecture, and of the simulated GPU.
    room: Option<Room>,
}

impl Target {
    /// The architecture asked for, or the device that a run would take.
    ///
    /// # Errors
    /// [`Failure`] where there is no such device.
    pub fn find(config: &RunConfig, asked: Option<Arch>) -> Result<Self, Failure> {
        // A plan for the simulated GPU is of use to those who ask for it.
        let choice = match (asked, config.target.device) {
            (Some(arch), _) => return Ok(Self::of(arch)),
            (None, DeviceChoice::Sim) => return Ok(Self::of(Arch::Sim)),
            (None, DeviceChoice::Auto) => DeviceChoice::Cuda(0),
            (None, choice) => choice,
        };
        match device::open(choice, &config.target.kernels) {
            Err(DeviceError::Driver(found @ (DriverError::NoDriver | DriverError::NoGpu { .. })))
                if config.target.device == DeviceChoice::Auto =>
            {
                let archs = Arch::GPUS.map(|arch| format!("--arch {}", arch.argument())).join(", ");
                Err(Failure::usage(format!("{found}.\nSay what to plan for: {archs}")))
            }
            opened => {
                let device = opened?.device().clone();
                let room = Room { bytes: device.free_bytes, device: Some(device.name.clone()) };
                Ok(Self { rows: device::rows(&device)?, device: Some(device), room: Some(room) })
            }
        }
    }

    /// An architecture, with nothing to compare a plan with.
    pub fn of(arch: Arch) -> Self {
        Self { rows: Rows { launches: arch, code: arch }, device: None, room: None }
    }

    /// Compares it with so many bytes of device memory, if that is asked for.
    #[must_use]
    pub fn with_memory(self, bytes: Option<u64>) -> Self {
        Self { room: bytes.map(|bytes| Room { bytes, device: None }).or(self.room), ..self }
    }

    /// Known of a device that is there, not of an architecture.
    fn memory(&self) -> DeviceMemory {
        self.device.as_ref().map_or(DeviceMemory::Own, DeviceMemory::of)
    }
}

#[cfg(test)]
mod tests;
