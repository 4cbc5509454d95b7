//! Devices, and the rows of kernels that they run.

use precast_core::Arch;
use precast_core::card::{Card, flops_per_clock};
use precast_core::chips::{Clocks, Peak};
use precast_core::tuned::Table;

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `NVIDIA H200`, `simulated GPU`.
    pub name: String,
    /// Name on the command line: `cuda:0`, `sim`.
    pub ordinal: String,
    /// Compute capability; none for the simulated GPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Highest CUDA version the driver takes; none for the simulated GPU.
    pub driver_version: Option<(u32, u32)>,
    /// Total memory, bytes.
    pub total_bytes: u64,
    /// Free memory, bytes; if shared with the host, the part a run can take ([`crate::host::takeable_bytes`]).
    pub free_bytes: u64,
    /// True if it shares memory with the host (`CU_DEVICE_ATTRIBUTE_INTEGRATED`).
    pub integrated: bool,
    /// Multiprocessors, or host threads, and their clocks.
    pub clocks: Clocks,
    /// Rows that it runs; none if it takes the code of none.
    pub rows: Option<Rows>,
}

/// Kernels that a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// Those of the best row that it takes.
    Own,
    /// Portable ones, selected by measurements on the device at hand; without any, as for sm_89.
    Portable,
    /// Those of another row, built for the device: the device stands in for that row's GPUs.
    As(Arch),
}

/// Rows of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Row that plans are made for: its variants, as selected for it.
    pub launches: Arch,
    /// Row whose machine code is loaded.
    pub code: Arch,
}

impl Launches {
    /// Returns the rows that a device runs, of those there is code for (`held`): if it takes none of them, those that
    /// it would take. None where it takes no row's code.
    pub(crate) fn rows(self, device: &Device, held: &[Arch], tuned: &Table) -> Option<Rows> {
        let capability = device.compute_capability?;
        let held = held.iter().copied().filter(|arch| Arch::GPUS.contains(arch));
        let own = Arch::of_device(capability, held).or_else(|| Arch::of_device(capability, Arch::GPUS))?;
        let portable = if own.is_exact() { Arch::Sm90Portable } else { own };
        Some(match self {
            Launches::Own => Rows { launches: own, code: own },
            Launches::Portable if device.is_measured(portable, tuned) => Rows { launches: portable, code: portable },
            Launches::Portable => Rows { launches: Arch::Sm89, code: portable },
            Launches::As(arch) if arch == own => Rows { launches: own, code: own },
            Launches::As(arch) => Rows { launches: arch, code: portable },
        })
    }
}

impl Device {
    /// True if a table has launches of an architecture that were measured on this chip, or on one of the architecture
    /// with as many multiprocessors, within 5 %.
    pub fn is_measured(&self, arch: Arch, tuned: &Table) -> bool {
        let covers = |chip: &str| tuned.covers(chip, arch);
        let difference = arch.multiprocessors().abs_diff(self.clocks.multiprocessors);
        covers(&self.name) || (20 * difference <= arch.multiprocessors() && arch.chip().is_some_and(covers))
    }

    /// Returns the figures that launches are selected by where nothing was measured; none where they are not known.
    pub fn card(&self) -> Option<Card> {
        let flops_per_clock = flops_per_clock(&self.name, self.compute_capability?)?;
        Some(Card { multiprocessors: self.clocks.multiprocessors, flops_per_clock })
    }

    /// True for a GPU that shares the host's memory: host allocations reduce the device's.
    pub fn has_one_memory(&self) -> bool {
        self.integrated && self.compute_capability.is_some()
    }

    /// Returns the highest rates of the device; none for the simulated GPU.
    pub fn peak(&self) -> Option<Peak> {
        Peak::of_device(&self.name, self.compute_capability, self.clocks)
    }

    /// Returns the architecture whose launches this device runs, if supported.
    pub fn arch(&self) -> Option<Arch> {
        self.rows.map(|rows| rows.launches)
    }
}
