//! Reads lock files of models and compares builds with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use precast_fatbins::{Change, Lock, LockError, Manifest};
use precast_kernels::Arch;
use precast_system::input;

use crate::build::Request;
use crate::compile::Task;
use crate::kernels;
use crate::models::Model;

/// Name of the lock of kernels that no model launches.
pub const UNLAUNCHED: &str = "unlaunched";

/// Differences of a build from its models' locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Every difference once, sorted.
    pub changes: Vec<Change>,
    pub unlocked: Vec<String>,
}

/// A lock file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockFileError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}\nprecast-aot lock rewrites it", path.display())]
    Parse { path: PathBuf, error: LockError },
}

/// Kernels that differ from the locked ones.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} kernels are not the locked ones ({}):\n  {}\nIf they should be: precast-aot lock, and commit {}",
    changes.len(),
    directory.display(),
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  "),
    directory.join("*.lock").display()
)]
pub struct NotLocked {
    /// Directory of the lock files.
    pub directory: PathBuf,
    pub changes: Vec<Change>,
}

/// Returns the path of a model's lock file.
pub fn path(directory: &Path, model: &str) -> PathBuf {
    directory.join(format!("{model}.lock"))
}

/// Reads the lock of a model; none if it has no file.
///
/// # Errors
/// [`LockFileError`] if the file exists and cannot be used.
pub fn read(directory: &Path, model: &str) -> Result<Option<Lock>, LockFileError> {
    let path = path(directory, model);
    match input::read_text(&path, input::SETTINGS_BYTES) {
        Ok(text) => text.parse().map(Some).map_err(|error| LockFileError::Parse { path, error }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LockFileError::Read { path, error }),
    }
}

/// Selects a manifest's entries of one model on the requested architectures.
pub fn of_model(manifest: &Manifest, request: &Request, model: &Model) -> Lock {
    of(manifest, &Request::of_models(vec![model.clone()], request.archs.clone()))
}

/// Selects a manifest's entries of requested kernels that no run over the built-in models launches.
pub fn of_unlaunched(manifest: &Manifest, request: &Request) -> Lock {
    if request.keys.is_empty() {
        return Lock::default();
    }
    let unlaunched = kernels::unlaunched();
    let keys = request.keys.iter().filter(|key| unlaunched.contains(key)).cloned().collect();
    of(manifest, &Request { models: Vec::new(), keys, archs: request.archs.clone() })
}

/// Selects a manifest's entries of a request.
fn of(manifest: &Manifest, request: &Request) -> Lock {
    let name = |task: Task| (task.arch.to_string(), task.pair.to_string());
    let names: BTreeSet<(String, String)> = request.tasks().into_iter().map(name).collect();
    Lock::of(manifest).filtered(|arch, name| names.contains(&(arch.to_owned(), name.to_owned())))
}

/// Compares a build with the locks of its models, on its architectures. Kernels that no trainer embeds are not locked.
///
/// # Errors
/// [`LockFileError`] if a lock file cannot be used.
pub fn compare(manifest: &Manifest, request: &Request, directory: &Path) -> Result<Comparison, LockFileError> {
    let mut comparison = Comparison::default();
    let wanted = |arch: &str| request.archs.iter().any(|wanted| wanted.name() == arch);
    let locked = |arch: &str| Arch::GPUS.iter().any(|target| target.name() == arch);
    for model in &request.models {
        let Some(lock) = read(directory, &model.name)? else {
            comparison.unlocked.push(model.name.clone());
            continue;
        };
        let built = of_model(manifest, request, model).filtered(|arch, _| locked(arch));
        comparison.changes.extend(lock.filtered(|arch, _| wanted(arch)).compare(&built));
    }
    // A request may name fewer kernels than are locked.
    let built = of_unlaunched(manifest, request).filtered(|arch, _| locked(arch));
    let lock = read(directory, UNLAUNCHED)?.unwrap_or_default();
    let changes = lock.compare(&built).into_iter().filter(|change| !matches!(change, Change::Missing(_)));
    comparison.changes.extend(changes);
    comparison.changes.sort_by_key(ToString::to_string);
    comparison.changes.dedup();
    Ok(comparison)
}
