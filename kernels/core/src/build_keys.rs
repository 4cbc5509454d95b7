//! The kernels of a build.

use std::collections::BTreeSet;

use crate::{Arch, Key, KeyVariant};

/// Kernels to build: each key as the variants that admit one of its launches, those of all architectures together.
///
/// A plan launches the same keys on every architecture, in variants of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildKeys(BTreeSet<KeyVariant>);

impl BuildKeys {
    /// Takes keys as all of their variants.
    pub fn of(keys: impl IntoIterator<Item = Key>) -> Self {
        let built = |key: Key| Arch::ALL.into_iter().flat_map(move |arch| key.built(arch).collect::<Vec<_>>());
        keys.into_iter().flat_map(built).collect()
    }

    /// Returns the keys.
    pub fn keys(&self) -> BTreeSet<&Key> {
        self.0.iter().map(|pair| &pair.key).collect()
    }

    /// Returns the keys of which an architecture has no variant that admits a launch.
    pub fn lacking(&self, arch: Arch) -> BTreeSet<&Key> {
        self.keys().into_iter().filter(|key| !key.built(arch).any(|pair| self.0.contains(&pair))).collect()
    }

    /// Returns those that an architecture has variants of.
    pub fn on(&self, arch: Arch) -> BTreeSet<KeyVariant> {
        self.keys().into_iter().flat_map(|key| key.built(arch)).filter(|pair| self.0.contains(pair)).collect()
    }
}

impl FromIterator<KeyVariant> for BuildKeys {
    fn from_iter<I: IntoIterator<Item = KeyVariant>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl IntoIterator for BuildKeys {
    type Item = KeyVariant;
    type IntoIter = std::collections::btree_set::IntoIter<KeyVariant>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<KeyVariant> for BuildKeys {
    fn extend<I: IntoIterator<Item = KeyVariant>>(&mut self, pairs: I) {
        self.0.extend(pairs);
    }
}
