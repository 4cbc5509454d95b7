//! The memory that a plan is to fit into, as it is asked for.

use precast_kernels::Arch;
use precast_plan::chips::Chip;

use crate::device::host_memory::DeviceMemory;
use crate::device::memory::{KERNELS_BYTES, Memory, MemorySource};
use crate::options::{DeviceChoice, UsageError};

/// The memory that a plan is to fit into.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// What is free on the device, where it is there.
    Device,
    /// `--memory`, bytes.
    Memory(u64),
    /// `--card`.
    Card(&'static Chip),
}

impl Limit {
    /// Refuses two answers to one question: a device that is named has a memory of its own, and a card an architecture.
    ///
    /// # Errors
    /// [`UsageError`].
    pub(super) fn check(self, device: DeviceChoice, asked: Option<Arch>) -> Result<(), UsageError> {
        let flag = match self {
            Self::Device => return Ok(()),
            Self::Memory(_) => "--memory",
            Self::Card(_) => "--card",
        };
        let is_free = device == DeviceChoice::Auto || flag == "--memory" && device == DeviceChoice::Sim;
        if !is_free {
            let message = format!("{flag} and --device {device} both say what the plan is to fit into: give one");
            return Err(UsageError(message));
        }
        match (self, asked) {
            (Self::Card(chip), Some(arch)) if Arch::of_device(chip.capability, [arch]).is_none() => {
                let (own, arch) = (chip.arch().argument(), arch.argument());
                Err(UsageError(format!("--card {}: it runs {own}, not {arch}: leave --arch out", chip.name)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the memory that it names, of the ownership of a device that is present.
    pub(super) fn memory(self, owner: DeviceMemory) -> Option<Memory> {
        let (free, owner, source) = match self {
            Self::Device => return None,
            Self::Memory(bytes) => (bytes, owner, MemorySource::Option),
            Self::Card(chip) if chip.memory.is_shared() => {
                (chip.memory.bytes(), DeviceMemory::Shared, MemorySource::Card(chip))
            }
            Self::Card(chip) => (chip.memory.bytes(), DeviceMemory::Own, MemorySource::Card(chip)),
        };
        Some(Memory { free, kernels: KERNELS_BYTES, owner, source })
    }
}
