//! Lock files of models: where they lie, and what of a build differs from them.

use std::path::{Path, PathBuf};

use precast_fatbins::{Change, Lock, LockError, Manifest};
use precast_kernels::Arch;

use crate::build::Request;
use crate::models::Model;

/// What of a build differs from its models' locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Every difference, sorted, each once.
    pub changes: Vec<Change>,
    /// Models without a lock file.
    pub unlocked: Vec<String>,
}

/// A lock file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not a lock.
    #[error("{}: {error}\nprecast-aot lock writes it anew", path.display())]
    Parse {
        /// Where.
        path: PathBuf,
        /// Why.
        error: LockError,
    },
}

/// Kernels that are not those that are locked.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} kernels are not the locked ones ({}):\n  {}\nIf they should be: precast-aot lock, and commit {}",
    changes.len(),
    directory.display(),
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  "),
    directory.join("*.lock").display()
)]
pub struct NotLocked {
    /// Where the lock files are.
    pub directory: PathBuf,
    /// What differs.
    pub changes: Vec<Change>,
}

/// The lock file of a model.
pub fn path(directory: &Path, model: &str) -> PathBuf {
    directory.join(format!("{model}.lock"))
}

/// The lock of a model, if it has one.
///
/// # Errors
/// [`LockFileError`] where the file is there and cannot be used.
pub fn read(directory: &Path, model: &str) -> Result<Option<Lock>, LockFileError> {
    let path = path(directory, model);
    match std::fs::read_to_string(&path) {
        Ok(text) => text.parse().map(Some).map_err(|error| LockFileError::Parse { path, error }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LockFileError::Read { path, error }),
    }
}

/// What a manifest holds for one model on the architectures asked for.
pub fn of_model(manifest: &Manifest, request: &Request, model: &Model) -> Lock {
    let alone = Request { models: vec![model.clone()], archs: request.archs.clone() };
    let keys: std::collections::BTreeSet<(String, String)> = alone
        .tasks()
        .into_iter()
        .map(|task| (task.arch.to_string(), format!("{}[{}]", task.pair.key, task.pair.variant)))
        .collect();
    Lock::of(manifest).filtered(|arch, name| keys.contains(&(arch.to_owned(), name.to_owned())))
}

/// Compares a build with the locks of its models, on the architectures it is for. What no trainer embeds is not locked.
///
/// # Errors
/// [`LockFileError`] where a lock file cannot be used.
pub fn compare(manifest: &Manifest, request: &Request, directory: &Path) -> Result<Comparison, LockFileError> {
    let mut comparison = Comparison::default();
    for model in &request.models {
        let Some(lock) = read(directory, &model.name)? else {
            comparison.unlocked.push(model.name.clone());
            continue;
        };
        let lock = lock.filtered(|arch, _| request.archs.iter().any(|wanted| wanted.name() == arch));
        let locked = |arch: &str| Arch::GPUS.iter().any(|target| target.name() == arch);
        let built = of_model(manifest, request, model).filtered(|arch, _| locked(arch));
        comparison.changes.extend(lock.compare(&built));
    }
    comparison.changes.sort_by_key(ToString::to_string);
    comparison.changes.dedup();
    Ok(comparison)
}
