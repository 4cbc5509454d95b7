//! Counts the cost of each instruction of a kernel, over all of its samples.

use std::collections::BTreeMap;

use precast_core::check::Case;
use precast_core::{Arch, KeyVariant};

use crate::check::{CheckFault, run};
use crate::compile::Simt;
use crate::cost::{Cost, Count, Traffic};
use crate::program::Program;

/// Costs of a kernel's samples.
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
/// The first [`CheckFault`].
pub fn count(simt: &Simt, pair: &KeyVariant, arch: Arch, seed: u64) -> Result<Counted, CheckFault> {
    let (key, variant, kernel) = (&pair.key, pair.variant, pair.key.kernel());
    let program = simt.compile_pair(&pair.source(), pair, arch)?;
    let mut samples = Vec::new();
    program.counts();
    for (sample, params) in kernel.samples().iter().enumerate().filter(|(_, params)| kernel.admits(variant, params)) {
        let (case, geometry) = (Case::new(key, params, seed + sample as u64), kernel.geometry(variant, params));
        run(&program, &case, &geometry, pair, arch, sample, seed)?;
        samples.push((sample, program.counts()));
    }
    Ok(Counted { program, samples })
}
