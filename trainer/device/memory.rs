//! The memory that a plan is to fit into, and what it takes of it: the one place that compares the two.

use std::fmt;

use precast_kernels::Arch;
use precast_plan::chips::Chip;
use precast_plan::human_bytes;
use precast_runtime::{Device, host};
use serde::Serialize;

use crate::device::host_memory::DeviceMemory;

/// Device memory for the kernels of a run, bytes, and more than they take.
pub const KERNELS_BYTES: u64 = 64 << 20;

/// Memory that plans are compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Bytes that can be taken.
    #[serde(rename = "bytes")]
    pub free: u64,
    /// Bytes of them that kernels take, at most.
    #[serde(skip)]
    pub kernels: u64,
    #[serde(skip)]
    pub owner: DeviceMemory,
    #[serde(skip)]
    pub source: MemorySource,
}

/// Who says how much memory there is.
#[derive(Clone, Debug)]
pub enum MemorySource {
    /// A device of this name, which leaves so many bytes of a memory that it shares to the system.
    Device { name: String, reserve: u64 },
    /// `--memory`.
    Option,
    /// `--card`.
    Card(&'static Chip),
}

/// Bytes that a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Takes {
    /// Bytes of the device: the `memory_bytes` of a run's metrics.
    pub bytes: u64,
    /// Bytes of the same memory that the host takes; 0 where each has its own.
    #[serde(skip)]
    pub host_bytes: u64,
}

impl Memory {
    /// Returns what is free on a device. The host references that the simulated GPU executes are no kernels.
    pub fn of(device: &Device) -> Self {
        let owner = DeviceMemory::of(device);
        let reserve = if owner == DeviceMemory::Shared { host::reserve_bytes(device.total_bytes) } else { 0 };
        Self {
            free: device.free_bytes,
            kernels: if device.arch() == Some(Arch::Sim) { 0 } else { KERNELS_BYTES },
            owner,
            source: MemorySource::Device { name: device.name.clone(), reserve },
        }
    }

    /// Returns true if there is room for a plan and its kernels.
    pub fn fits(&self, takes: Takes) -> bool {
        takes.bytes.saturating_add(takes.host_bytes).saturating_add(self.kernels) <= self.free
    }

    /// Describes it for people: `23.00 GiB (NVIDIA GeForce RTX 4090: 24.00 GiB by its data sheet, ...)`.
    pub fn described(&self) -> String {
        let bytes = human_bytes(self.free);
        match &self.source {
            MemorySource::Device { name, .. } => format!("{bytes} free on {name}"),
            MemorySource::Option => format!("{bytes} (--memory)"),
            MemorySource::Card(chip) => format!("{bytes} ({}: {})", chip.name, chip.memory),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.free;
        match &self.source {
            MemorySource::Device { name, reserve: 0 } => write!(f, "{name} has {free} bytes free"),
            MemorySource::Device { name, reserve } => write!(
                f,
                "{name} has {free} bytes that can be taken: what the page cache holds counts as free, and {reserve} \
                bytes stay with the \
                 system"
            ),
            MemorySource::Option => write!(f, "--memory is {free} bytes"),
            MemorySource::Card(chip) => write!(f, "{} has {free} bytes", chip.name),
        }
    }
}

impl Takes {
    /// Returns the part of a message that names the host's bytes; empty where it takes none of this memory.
    pub fn beside(self, bytes: impl Fn(u64) -> String) -> String {
        match self.host_bytes {
            0 => String::new(),
            host => format!(" and {} for the host, which shares it", bytes(host)),
        }
    }
}
