//! Costs of a kernel's accesses in the memory system of a GPU: sectors of global memory, wavefronts of shared memory.

use std::iter::Sum;
use std::ops::Add;

use crate::launch::RawCount;

/// Kind of an instruction that accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// Reads global memory.
    Load,
    /// Writes global memory.
    Store,
    /// `cp.async`: it reads global memory. How what arrives is written to shared memory is not counted.
    Copy,
    /// Reads shared memory.
    SharedLoad,
    /// Writes shared memory.
    SharedStore,
    /// `ldmatrix`.
    LoadMatrix,
}

impl Traffic {
    /// In the machine's order.
    pub const ALL: [Traffic; 6] =
        [Traffic::Load, Traffic::Store, Traffic::Copy, Traffic::SharedLoad, Traffic::SharedStore, Traffic::LoadMatrix];

    /// True for global memory, false for shared memory.
    pub fn is_global(self) -> bool {
        self <= Traffic::Copy
    }

    /// Returns the unit of [`Cost::moved`] in those of [`Cost::needed`]: 32 bytes of a sector, or 1 wavefront.
    pub fn unit(self) -> u64 {
        if self.is_global() { 32 } else { 1 }
    }
}

/// Cost of instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Warps that executed one.
    pub requests: u64,
    /// 32-byte sectors of global memory, or wavefronts of shared memory.
    pub moved: u64,
    /// Bytes of global memory that the lanes of a request asked for, each once; or the wavefronts of shared memory that
    /// it would take without bank conflicts.
    pub needed: u64,
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let Self { requests, moved, needed } = other;
        Self { requests: self.requests + requests, moved: self.moved + moved, needed: self.needed + needed }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// Cost of one instruction of a program in a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// In the program.
    pub(crate) address: u64,
    /// Its kind.
    pub traffic: Traffic,
    /// Its cost.
    pub cost: Cost,
}

impl Count {
    pub(crate) fn new(raw: &RawCount, base: u64) -> Self {
        let &RawCount { pc, traffic, requests, moved, needed, .. } = raw;
        Self { address: pc - base, traffic: Traffic::ALL[traffic as usize], cost: Cost { requests, moved, needed } }
    }
}
