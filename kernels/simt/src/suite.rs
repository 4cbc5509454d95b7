//! Many kernels, checked in parallel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use precast_core::{Arch, KeyVariant, Source};
use rayon::prelude::*;

use crate::check::{CheckOutcome, check_all};
use crate::compile::Simt;

/// Architectures whose kernels are executed: all that have machine code.
pub const ARCHS: [Arch; 8] =
    [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90a, Arch::Sm90Portable, Arch::Sm100, Arch::Sm120, Arch::Sm121];

/// Seeds of the scheduler and of the random inputs, where time does not count.
pub const SEEDS: [u64; 3] = [1, 2, 3];

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Is told what is said of a check: of one that has passed, or its fault.
pub type Done<'a> = dyn Fn(&Check, Result<&str, &str>) -> Result<(), Error> + Sync + 'a;

/// A build of a key, and the architectures that it is checked for.
pub struct Check {
    pair: KeyVariant,
    archs: Vec<Arch>,
}

impl Check {
    /// Gathers the architectures of each build.
    pub fn of(builds: impl IntoIterator<Item = (KeyVariant, Arch)>) -> Vec<Self> {
        let mut pairs: BTreeMap<KeyVariant, Vec<Arch>> = BTreeMap::new();
        for (pair, arch) in builds {
            pairs.entry(pair).or_default().push(arch);
        }
        pairs.into_iter().map(|(pair, archs)| Self { pair, archs }).collect()
    }

    /// Counts the builds it checks: one an architecture.
    pub fn builds(&self) -> usize {
        self.archs.len()
    }

    /// Key, variant and architectures.
    pub fn name(&self) -> String {
        format!("{} for {}", self.pair, self.archs.iter().map(Arch::to_string).collect::<Vec<_>>().join(" "))
    }
}

/// Runs checks, each with every seed, of the text that `source` gives for what is built in. `done` is told of each as
/// soon as it is known. Returns what is said of all.
///
/// # Errors
/// The number of those that have a fault; or the first error of `done`.
pub fn check_each(
    simt: &Simt,
    checks: &[Check],
    seeds: &[u64],
    source: &(dyn Fn(Source) -> Result<Source, Error> + Sync),
    done: &Done<'_>,
) -> Result<String, Error> {
    let (started, launches, faults) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    let checked = |Check { pair, archs }: &Check| -> Result<CheckOutcome, Error> {
        Ok(check_all(simt, &source(pair.source())?, pair, archs, seeds)?)
    };
    checks.par_iter().with_max_len(1).try_for_each(|check| {
        let own = Instant::now();
        match checked(check) {
            Ok(outcome) => {
                launches.fetch_add(outcome.launches, Ordering::Relaxed);
                let (seconds, worst) = (own.elapsed().as_secs_f64(), outcome.worst);
                let said = format!("{} launches, distance {worst:.1e}, {seconds:.1} s", outcome.launches);
                done(check, Ok(&format!("{}: {said}", check.name())))
            }
            Err(fault) => {
                faults.fetch_add(1, Ordering::Relaxed);
                done(check, Err(&format!("{}\n  {fault}", check.name())))
            }
        }
    })?;
    let faults = faults.into_inner();
    if faults > 0 {
        return Err(format!("{faults} of {} kernels have a fault: see above", checks.len()).into());
    }
    let builds: usize = checks.iter().map(Check::builds).sum();
    let (launches, seconds) = (launches.into_inner(), started.elapsed().as_secs_f64());
    Ok(format!("{builds} kernels, {launches} launches: as their references, no rule broken; {seconds:.0} s"))
}
