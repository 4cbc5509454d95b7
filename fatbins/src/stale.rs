//! Finds modules of a bundle that this program would make from other sources, or does not know.

use std::fmt;

use precast_core::{Arch, Kernels};

use crate::foreign::gpus;
use crate::manifest::Manifest;

/// Modules listed in a message: a whole bundle of another version has hundreds.
const LISTED: usize = 5;

/// Modules of a bundle whose sources are not this program's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Stale {
    /// Every such module, in the manifest's order.
    pub modules: Vec<StaleModule>,
    /// Number of modules in the bundle.
    pub total: usize,
    /// Architectures of the bundle, sorted.
    pub archs: Vec<Arch>,
    /// Command that builds them, for what the bundle was built for.
    pub remedy: String,
}

/// A module that must not be used, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleModule {
    /// Its sources, headers, options or macros are not this program's.
    Source(String),
    /// Its key or variant is unknown to this program.
    Unknown(String),
}

impl Stale {
    /// Reports these modules of a manifest to the program with these kernels.
    pub(crate) fn new(manifest: &Manifest, modules: Vec<StaleModule>, kernels: &Kernels) -> Self {
        let archs = gpus(manifest);
        let remedy = (kernels.rebuild)(&manifest.built_for, &archs);
        Self { modules, total: manifest.modules.len(), archs, remedy }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { modules, total, remedy, .. } = self;
        writeln!(f, "{} of {total} modules were not made from this program's sources:", modules.len())?;
        modules.iter().take(LISTED).try_for_each(|module| writeln!(f, "  {module}"))?;
        if modules.len() > LISTED {
            writeln!(f, "  and {} more", modules.len() - LISTED)?;
        }
        write!(f, "Build them with: {remedy}")
    }
}

impl fmt::Display for StaleModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(module) => write!(f, "STALE   {module}"),
            Self::Unknown(module) => write!(f, "UNKNOWN {module}"),
        }
    }
}
