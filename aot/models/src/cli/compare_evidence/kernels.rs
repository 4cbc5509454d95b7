//! Kernels of a file of evidence, in full or in short.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::{Evidence, Launch, Output, Results, short};
use precast_kernels::{Arch, KERNELS, KeyVariant};
use precast_system::count;

/// A launch from a whole file or a summary.
pub(super) struct Launched<'a> {
    pub brief: Launch,
    pub fault: Option<&'a str>,
    /// None in a summary.
    pub outputs: Option<&'a [Output]>,
}

/// A kernel of a chip, and its launches.
pub(super) struct Kernel<'a> {
    /// Key and variant.
    pub name: &'a str,
    pub arch: &'a str,
    /// Digest of its sources, in short; empty for one that was not loaded.
    source: &'a str,
    /// True if that is the digest of this program's.
    pub is_current: bool,
    pub launches: Vec<Launched<'a>>,
}

impl<'a> Kernel<'a> {
    fn new(arch: &'a str, name: &'a str, source: &'a str) -> Self {
        let own = known(name, arch).map(|(pair, arch)| pair.source_digest(arch).to_string());
        let source = short(source);
        Self { name, arch, source, is_current: own.as_deref().map(short) == Some(source), launches: Vec::new() }
    }

    /// Names the operation and what is baked in.
    pub fn key(&self) -> &'a str {
        self.name.rsplit_once('[').map_or(self.name, |(key, _)| key)
    }

    /// True if a kernel has the same sources in both files. Digests cover the architecture; across architectures both
    /// must match this program's sources.
    pub fn is_one_with(&self, other: &Self) -> bool {
        self.arch == other.arch && self.source == other.source || self.is_current && other.is_current
    }
}

/// Kernels by key and variant.
pub(super) type Kernels<'a> = BTreeMap<&'a str, Kernel<'a>>;

/// Finds a kernel that this program builds for a chip.
fn known(kernel: &str, arch: &str) -> Option<(KeyVariant, Arch)> {
    let arch: Arch = arch.parse().ok()?;
    let key = KERNELS.parse(kernel.rsplit_once('[')?.0).ok()?;
    Some((key.built(arch).find(|pair| pair.to_string() == kernel)?, arch))
}

/// Returns the kernels that were loaded or launched.
pub(super) fn of(evidence: &Evidence) -> Kernels<'_> {
    let arch = &*evidence.chip.arch;
    let mut kernels = Kernels::new();
    match &evidence.results {
        Results::Whole(whole) => {
            for load in &whole.loads {
                kernels.insert(&load.kernel, Kernel::new(arch, &load.kernel, &load.source));
            }
            for check in &whole.checks {
                let kernel = kernels.entry(&check.kernel).or_insert_with(|| Kernel::new(arch, &check.kernel, ""));
                let (brief, fault) = (Launch::of(check), check.fault.as_deref());
                kernel.launches.push(Launched { brief, fault, outputs: Some(&check.outputs) });
            }
        }
        Results::Summary { kernels: all } => {
            for (name, summary) in all {
                let launched = |brief: &Launch| Launched { brief: brief.clone(), fault: None, outputs: None };
                let launches = summary.launches.iter().map(launched).collect();
                kernels.insert(name, Kernel { launches, ..Kernel::new(arch, name, &summary.source) });
            }
        }
    }
    kernels
}

/// Lists samples that the first file lacks, of its kernels and of those of the other file that its chip also runs: two
/// files that lack the same parts agree on nothing.
pub(super) fn missing(file: &str, arch: &str, own: &Kernels<'_>, other: &Kernels<'_>) -> Vec<String> {
    let all: BTreeSet<&str> = own.keys().chain(other.keys()).copied().collect();
    let lacks = |name: &str| {
        let (pair, _) = known(name, arch)?;
        let (kernel, there) = (pair.key.kernel(), own.get(name).map_or(&[][..], |kernel| &kernel.launches));
        let samples = kernel.samples();
        let admitted = (0..samples.len()).filter(|sample| kernel.admits(pair.variant, &samples[*sample]));
        let (there, missing): (Vec<usize>, Vec<usize>) =
            admitted.partition(|sample| there.iter().any(|launch| launch.brief.0 == *sample));
        let samples = count(there.len() + missing.len(), "sample");
        (!missing.is_empty()).then(|| format!("{file}: {} of {samples} of {name}", missing.len()))
    };
    all.into_iter().filter_map(lacks).collect()
}
