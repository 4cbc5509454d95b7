//! The sources that kernels in a file of evidence are made from, beside this program's.

use std::collections::{BTreeMap, BTreeSet};

use precast_fatbins::evidence::{Gathered, short};
use precast_kernels::{Arch, Key};

/// Sources of a file's kernels.
pub(super) struct Sources<'a> {
    arch: &'a str,
    /// Digests by key and variant.
    digests: BTreeMap<&'a str, &'a str>,
    /// Kernels that this program has with the same digest.
    known: BTreeSet<&'a str>,
    /// How many kernels the file names, and how many of them are of this program's sources.
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

    /// Whether a kernel is of this program's sources.
    pub(super) fn is_current(&self, kernel: &str) -> bool {
        self.known.contains(kernel)
    }

    /// Whether both files' kernel is of the same sources. Digests cover the architecture: across two of them this program's
    /// sources tell.
    pub(super) fn is_one_with(&self, other: &Self, kernel: &str) -> bool {
        let same = self.arch == other.arch && self.digests.get(kernel) == other.digests.get(kernel);
        same || self.is_current(kernel) && other.is_current(kernel)
    }
}

/// The source digest that a kernel has in this program.
fn own(arch: &str, kernel: &str) -> Option<String> {
    let arch: Arch = arch.parse().ok()?;
    let key = Key::parse(kernel.rsplit_once('[')?.0).ok()?;
    let pair = key.built(arch).find(|pair| pair.to_string() == kernel)?;
    Some(pair.source_digest(arch).to_string())
}
