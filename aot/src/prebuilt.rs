//! Takes the kernels of a request from a published bundle, for builds without a compiler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use precast_core::Arch;
use precast_fatbins::{BundleError, BundleFile, Digest, ModuleEntry, TrustedKey};
use precast_system::input::ReadError;

use crate::budget::{self, OverBudget};
use crate::build::{Built, Request, manifest};

/// Name of the bundle in a directory that `precast-aot fetch` installed.
const BUNDLE: &str = "precast.bundle";

/// A published bundle that cannot serve the request.
#[derive(Debug, thiserror::Error)]
pub enum PrebuiltError {
    /// The directory has no bundle.
    #[error(
        "no {BUNDLE} in {} nor in its folder `published`\nprecast-aot fetch --from DIR|FILE.tar installs one",
        .0.display()
    )]
    NotThere(PathBuf),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The bundle must not be used.
    #[error("{}: {error}", path.display())]
    Bundle {
        /// The bundle.
        path: PathBuf,
        /// Its fault.
        error: BundleError,
    },
    /// Some of its kernels are over budget.
    #[error("{}: {error}", path.display())]
    OverBudget {
        /// The bundle.
        path: PathBuf,
        /// Kernels and limits.
        error: OverBudget,
    },
    /// Kernels of the build are not in the bundle.
    #[error(
        "{} lacks what this build embeds:\n  {}\nWhere there is a compiler: {publish}",
        path.display(),
        lacking.join("\n  ")
    )]
    Lacking {
        /// The bundle.
        path: PathBuf,
        /// Key, variant and architecture of each.
        lacking: Vec<String>,
        /// Commands that make and bring them.
        publish: String,
    },
}

/// Selects the kernels of a request from the bundle in a directory; verifies each, and that it is built from this
/// program's sources. The result equals that of compiling.
///
/// # Errors
/// [`PrebuiltError`] with every missing kernel, or every one of other sources.
pub fn select(directory: &Path, keys: &[TrustedKey], request: &Request) -> Result<Built, PrebuiltError> {
    let candidates = [directory.join(BUNDLE), directory.join("published").join(BUNDLE)];
    let path = candidates.into_iter().find(|path| path.is_file());
    let path = path.ok_or_else(|| PrebuiltError::NotThere(directory.to_owned()))?;
    let file = BundleFile::read(&path).map_err(ReadError::of(&path))?;
    let failure = |error| PrebuiltError::Bundle { path: path.clone(), error };
    let bundle = file.open(keys, request.kernels).map_err(failure)?;
    bundle.verify().map_err(failure)?;
    let mut held = BTreeMap::new();
    for arch in Arch::GPUS {
        for module in bundle.modules(arch).map_err(|error| failure(error.into()))? {
            held.insert((module.pair, module.arch), (module.entry, module.image));
        }
    }
    let (mut modules, mut cubins, mut lacking) = (Vec::new(), BTreeMap::new(), Vec::new());
    for task in request.tasks() {
        match held.get(&(task.pair.clone(), task.arch)) {
            None => lacking.push(format!("MISSING {task}")),
            Some((entry, image)) => {
                modules.push(ModuleEntry::clone(entry));
                cubins.insert(Digest::of(image), image.to_vec());
            }
        }
    }
    if !lacking.is_empty() {
        return Err(PrebuiltError::Lacking { path, lacking, publish: request.publish.clone() });
    }
    budget::check_all(&modules, request.kernels).map_err(|error| PrebuiltError::OverBudget { path, error })?;
    modules.extend(request.keys(Arch::Sim).iter().map(ModuleEntry::simulated));
    Ok(Built { manifest: manifest(request, &bundle.manifest().compiler, modules), cubins, compiled: 0 })
}
