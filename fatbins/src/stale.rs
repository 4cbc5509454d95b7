//! A bundle of another version: modules that this program would make from other sources, or does not know.

use std::fmt;

use precast_kernels::Arch;

use crate::manifest::Manifest;

/// What of a bundle is not of this program's sources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Stale {
    /// Every such module, in the manifest's order.
    pub modules: Vec<StaleModule>,
    /// How many modules the bundle holds.
    pub total: usize,
    /// Models to rebuild, in the remedy: those of the bundle, unless whoever runs knows better.
    pub models: Vec<String>,
    /// Architectures to build for, in the remedy.
    pub archs: Vec<Arch>,
}

/// A module that must not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleModule {
    /// Made from other sources, headers, options or macros than this program's.
    Source(String),
    /// A key or variant that this program does not have.
    Unknown(String),
}

impl Stale {
    /// What is said of the modules of a manifest.
    pub(crate) fn new(manifest: &Manifest, modules: Vec<StaleModule>) -> Self {
        let mut archs: Vec<Arch> = manifest.modules.iter().filter_map(|module| Arch::of_name(&module.arch)).collect();
        archs.sort_unstable();
        archs.dedup();
        archs.retain(|arch| *arch != Arch::Sim);
        Self { modules, total: manifest.modules.len(), models: manifest.models.clone(), archs }
    }
}

/// The command that builds kernels.
pub fn build_command(models: &[String], archs: &[Arch]) -> String {
    let mut command = "precast-aot build".to_owned();
    models.iter().for_each(|model| command.push_str(&format!(" --model {model}")));
    if !archs.is_empty() {
        let archs: Vec<&str> = archs.iter().map(|arch| arch.argument()).collect();
        command.push_str(&format!(" --arch {}", archs.join(",")));
    }
    command + " --out run.bundle"
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { modules, total, models, archs } = self;
        writeln!(f, "{} of {total} modules were not made from this program's sources:", modules.len())?;
        modules.iter().try_for_each(|module| writeln!(f, "  {module}"))?;
        write!(f, "Build them with: {}", build_command(models, archs))
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
