//! The memory that there is, and what a run takes of it.

use std::fmt;

use precast_plan::{Formats, chips::Chip, human_bytes};
use precast_runtime::Device;
use serde::Serialize;

use super::Target;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::shapes::Shapes;
use crate::device::weight_format::fits;
use crate::options::RunConfig;
use crate::programs::failure::Failure;

/// The memory that a plan is compared with.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Room {
    pub bytes: u64,
    #[serde(skip)]
    pub owner: Owner,
}

/// Where a memory is, or is said to be.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// A device of this name, which has it free.
    Device(String),
    /// `--memory`.
    Option,
    /// `--card`.
    Card(&'static Chip),
}

impl Room {
    pub fn of_device(device: &Device) -> Self {
        Self { bytes: device.free_bytes, owner: Owner::Device(device.name.clone()) }
    }

    pub fn card(&self) -> Option<&'static Chip> {
        match self.owner {
            Owner::Card(chip) => Some(chip),
            Owner::Device(_) | Owner::Option => None,
        }
    }

    /// For people: `23.00 GiB (NVIDIA GeForce RTX 4090: 24.00 GiB by its data sheet, ...)`.
    pub fn described(&self) -> String {
        let bytes = human_bytes(self.bytes);
        match &self.owner {
            Owner::Device(device) => format!("{bytes} free on {device}"),
            Owner::Option => format!("{bytes} (--memory)"),
            Owner::Card(chip) => format!("{bytes} ({}: {})", chip.name, chip.memory),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Owner::Device(device) => write!(f, "{device} has {} bytes free", self.bytes),
            Owner::Option => write!(f, "--memory is {} bytes", self.bytes),
            Owner::Card(chip) => write!(f, "{} has {} bytes", chip.name, self.bytes),
        }
    }
}

/// Memory that a run takes, bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Takes {
    /// Bytes of the device: the `memory_bytes` of the run's metrics.
    pub bytes: u64,
    /// Bytes of the same memory that the host takes.
    #[serde(skip)]
    pub host_bytes: u64,
}

impl Takes {
    /// By a run whose teacher has its matrices in `formats`.
    pub fn of(config: &RunConfig, shapes: &Shapes, formats: &Formats, target: &Target) -> Result<Self, Failure> {
        let plan = shapes.lower(config, &config.recipe(), formats, target.rows.launches)?;
        let host_bytes = match target.memory() {
            DeviceMemory::Own => 0,
            shared => HostMemory::of(&plan, &config.data, shared).total_bytes,
        };
        Ok(Self { bytes: plan.plan.device_bytes(), host_bytes })
    }

    /// True if that fits, with kernels. A run with nothing to compare with fits.
    pub fn fits(self, room: Option<&Room>) -> bool {
        room.is_none_or(|room| fits(self.bytes.saturating_add(self.host_bytes), room.bytes))
    }
}
