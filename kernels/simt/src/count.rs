//! What a kernel's accesses cost the memory system of a GPU: sectors of global memory, wavefronts of shared memory.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::Add;

use precast_kernels::check::Case;
use precast_kernels::{Arch, Key, KeyVariant, Variant};

use crate::check::{Fault, run};
use crate::compile::Simt;
use crate::launch::RawCount;
use crate::program::Program;

/// What an instruction does.
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

    /// Whether it is of global memory, not of shared memory.
    pub fn is_global(self) -> bool {
        self <= Traffic::Copy
    }

    /// What one of [`Cost::moved`] is in terms of [`Cost::needed`]: the bytes of a sector, or a wavefront.
    pub fn unit(self) -> u64 {
        if self.is_global() { 32 } else { 1 }
    }
}

/// What instructions cost.
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

/// What one instruction of a program cost in a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// In the program, for [`Counted::line`].
    pub(crate) address: u64,
    /// What it does.
    pub traffic: Traffic,
    /// What it cost.
    pub cost: Cost,
}

impl Count {
    pub(crate) fn new(raw: &RawCount, base: u64) -> Self {
        let &RawCount { pc, traffic, requests, moved, needed, .. } = raw;
        Self { address: pc - base, traffic: Traffic::ALL[traffic as usize], cost: Cost { requests, moved, needed } }
    }
}

/// What the samples of a kernel cost.
pub struct Counted {
    program: Program,
    /// Each sample that was run, and its instructions.
    pub samples: Vec<(usize, Vec<Count>)>,
}

impl Counted {
    /// Its instructions, each over all samples.
    pub fn instructions(&self) -> Vec<Count> {
        let mut all: BTreeMap<(u64, Traffic), Cost> = BTreeMap::new();
        for count in self.samples.iter().flat_map(|(_, counts)| counts) {
            let cost = all.entry((count.address, count.traffic)).or_default();
            *cost = *cost + count.cost;
        }
        all.into_iter().map(|((address, traffic), cost)| Count { address, traffic, cost }).collect()
    }

    /// The source line of an instruction.
    pub fn line(&self, count: &Count) -> String {
        self.program.line(count)
    }
}

/// Runs every sample, checked as [`crate::check_all`] does, and counts.
///
/// # Errors
/// The first [`Fault`].
pub fn count(simt: &Simt, key: &Key, variant: Variant, arch: Arch, seed: u64) -> Result<Counted, Fault> {
    let kernel = key.kernel();
    let pair = KeyVariant { key: key.clone(), variant };
    let program = simt.compile(&pair.source(), &pair.defines(arch), arch)?;
    let mut samples = Vec::new();
    program.counts();
    for (sample, params) in kernel.samples().iter().enumerate().filter(|(_, params)| kernel.admits(variant, params)) {
        let (case, geometry) = (Case::new(key, params, seed + sample as u64), kernel.geometry(variant, params));
        run(&program, &case, &geometry, variant, arch, sample, seed)?;
        samples.push((sample, program.counts()));
    }
    Ok(Counted { program, samples })
}
