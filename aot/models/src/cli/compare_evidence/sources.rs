//! Compares source digests of the kernels in a file of evidence with this program's.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::{Gathered, short};
use precast_kernels::{Arch, KERNELS};

/// Source digests of a file's kernels.
pub(super) struct Sources<'a> {
    arch: &'a str,
    digests: BTreeMap<&'a str, &'a str>,
    /// Kernels whose digest is this program's.
    known: BTreeSet<&'a str>,
    /// Number of kernels in the file, and of those with this program's sources.
    pub all: usize,
    pub current: usize,
}

impl<'a> Sources<'a> {
    pub(super) fn of(gathered: &'a Gathered) -> Self {
        let digests: BTreeMap<&str, &str> = match gathered {
            Gathered::Whole(evidence) => {
                evidence.loads.iter().map(|load| (&*load.kernel, short(&load.source))).collect()
            }
            Gathered::Summary(summary) => {
                summary.kernels.iter().map(|(kernel, of)| (&**kernel, short(&of.source))).collect()
            }
        };
        let arch = &*gathered.chip().arch;
        let known: BTreeSet<&str> = digests
            .iter()
            .filter(|(kernel, digest)| own(arch, kernel).as_deref().map(short) == Some(**digest))
            .map(|(k, _)| *k)
            .collect();
        Self { arch, all: digests.len(), current: known.len(), digests, known }
    }

    /// True if the kernel has this program's sources.
    pub(super) fn is_current(&self, kernel: &str) -> bool {
        self.known.contains(kernel)
    }

    /// True if a kernel has the same sources in both files. Digests cover the architecture; across architectures both
    /// must match this program's sources.
    pub(super) fn is_one_with(&self, other: &Self, kernel: &str) -> bool {
        let same = self.arch == other.arch && self.digests.get(kernel) == other.digests.get(kernel);
        same || self.is_current(kernel) && other.is_current(kernel)
    }
}

/// Returns the digest of this program's source of a kernel.
fn own(arch: &str, kernel: &str) -> Option<String> {
    let arch: Arch = arch.parse().ok()?;
    let key = KERNELS.parse(kernel.rsplit_once('[')?.0).ok()?;
    let pair = key.built(arch).find(|pair| pair.to_string() == kernel)?;
    Some(pair.source_digest(arch).to_string())
}
