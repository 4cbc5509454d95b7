//! The device, or the architecture, that a plan is for.

use precast_kernels::Arch;
use precast_plan::chips::{Chip, Peak};
use precast_runtime::{Device, DriverError, Rows};

use super::Limit;
use crate::device::host_memory::DeviceMemory;
use crate::device::memory::{Memory, MemorySource};
use crate::device::{self, DeviceError};
use crate::options::{Advised, DeviceChoice, DeviceOptions};
use crate::run::failure::Failure;

/// Target of a plan.
#[derive(Debug)]
pub struct Target {
    pub(super) rows: Rows,
    /// The GPU, where it is one that is there.
    pub(super) device: Option<Device>,
    /// The memory that the plan is compared with; none of an architecture, and of the simulated GPU.
    pub(super) memory: Option<Memory>,
}

impl Target {
    /// The architecture asked for, else that of the limit's card, else the device that a run would take.
    ///
    /// # Errors
    /// [`Failure`] where there is no such device, and where two of them say how much memory there is.
    pub fn find(device: &DeviceOptions, asked: Option<Arch>, limit: Limit) -> Result<Self, Failure> {
        limit.check(device.device, asked)?;
        let target = match (asked, limit) {
            (Some(arch), _) => Self::of(arch),
            (None, Limit::Card(chip)) => Self::of(chip.arch()),
            (None, limit) => Self::of_device(device, limit)?,
        };
        let owner = target.device.as_ref().map_or(DeviceMemory::Own, DeviceMemory::of);
        Ok(Self { memory: limit.memory(owner).or(target.memory), ..target })
    }

    fn of_device(asked: &DeviceOptions, limit: Limit) -> Result<Self, Failure> {
        // A plan for the simulated GPU is of use to those who ask for it.
        let choice = match asked.device {
            DeviceChoice::Sim => return Ok(Self::of(Arch::Sim)),
            DeviceChoice::Auto => DeviceChoice::Cuda(0),
            choice => choice,
        };
        match device::open(choice, &asked.kernels) {
            Err(DeviceError::Driver(found @ (DriverError::NoDriver | DriverError::NoGpu { .. })))
                if asked.device == DeviceChoice::Auto =>
            {
                let archs = Arch::GPUS.map(|arch| format!("--arch {}", arch.argument())).join(", ");
                // A dry run has no --card.
                Err(Failure::usage(match limit {
                    Limit::Memory(_) => format!(
                        "--memory says how much, and not of which GPU: give --card NAME in its place, as 4090, or \
                        beside it {archs}"
                    ),
                    Limit::Device | Limit::Card(_) => format!(
                        "{}.\nSay what to plan for: `precast plan --card NAME`, as 4090, or {archs}",
                        found.advised()
                    ),
                }))
            }
            opened => {
                let device = opened?.device().clone();
                let memory = Some(Memory::of(&device));
                Ok(Self { rows: device::rows(&device)?, device: Some(device), memory })
            }
        }
    }

    /// An architecture, with nothing to compare a plan with.
    pub fn of(arch: Arch) -> Self {
        Self { rows: Rows { launches: arch, code: arch }, device: None, memory: None }
    }

    pub(super) fn card(&self) -> Option<&'static Chip> {
        match self.memory.as_ref()?.source {
            MemorySource::Card(chip) => Some(chip),
            MemorySource::Device { .. } | MemorySource::Option => None,
        }
    }

    /// Rates that a step is estimated by; none where they are not known.
    pub(super) fn peak(&self) -> Option<Peak> {
        self.card().map_or_else(|| Peak::of(self.rows.launches), |chip| chip.peak)
    }
}
