//! Reads lock files and compares builds with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use precast_core::{Arch, BuildKeys};
use precast_fatbins::{Change, Lock, LockError, Manifest};
use precast_system::files;
use precast_system::input::{self, ReadError};

/// Kernels that have a lock file.
#[derive(Clone, Debug)]
pub struct Part {
    /// Name of the file: `NAME.lock`.
    pub name: String,
    /// Kernels that it has.
    pub keys: BuildKeys,
    /// Rules of its file.
    pub strictness: Strictness,
    /// Command that writes the file.
    pub command: String,
}

/// Expectations of a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// It is there, and a build has the kernels in it.
    Required,
    /// It is there, and a build may have some of the kernels in it.
    Shared,
    /// If it is there, a build has the kernels in it.
    Optional,
}

/// Differences of a build from its locks.
#[derive(Clone, Debug, Default)]
pub struct Comparison<'p> {
    /// Every difference once, sorted.
    pub changes: Vec<Change>,
    /// Parts without a lock file.
    pub unlocked: Vec<&'p Part>,
}

/// A lock file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockFileError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// A file is no lock file.
    #[error("{}: {error}\nRemove it, and lock the kernels again", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// First fault.
        error: LockError,
    },
}

/// Kernels that differ from the locked ones.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} kernels are not the locked ones ({}):\n  {}\nIf they should be: {command}, and commit {}",
    changes.len(),
    directory.display(),
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  "),
    directory.join("*.lock").display()
)]
pub struct NotLocked {
    /// Directory of the lock files.
    pub directory: PathBuf,
    /// Modules that differ.
    pub changes: Vec<Change>,
    /// Command that writes the locks.
    pub command: String,
}

/// Returns the path of a lock file.
pub fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.lock"))
}

/// Reads a lock; none if it has no file.
///
/// # Errors
/// [`LockFileError`] if the file exists and cannot be used.
pub fn read(directory: &Path, name: &str) -> Result<Option<Lock>, LockFileError> {
    let path = path(directory, name);
    match input::read_text(&path, input::SETTINGS_BYTES) {
        Ok(text) => text.parse().map(Some).map_err(|error| LockFileError::Parse { path, error }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ReadError { path, error }.into()),
    }
}

/// Selects a manifest's entries of a part, on these architectures.
pub fn of(manifest: &Manifest, part: &Part, archs: &[Arch]) -> Lock {
    select(&Lock::of(manifest), &part.keys, archs)
}

/// Selects a lock's entries of these keys, on these architectures.
pub fn select(lock: &Lock, keys: &BuildKeys, archs: &[Arch]) -> Lock {
    let name = |arch: Arch| keys.on(arch).into_iter().map(move |pair| (arch.to_string(), pair.to_string()));
    let names: BTreeSet<(String, String)> = archs.iter().copied().flat_map(name).collect();
    lock.filtered(|arch, name| names.contains(&(arch.to_owned(), name.to_owned())))
}

/// Writes a part's kernels on these architectures into its lock file; those of other architectures stay.
///
/// # Errors
/// [`LockFileError`] if the file cannot be used or written.
pub fn write(manifest: &Manifest, part: &Part, archs: &[Arch], directory: &Path) -> Result<(), LockFileError> {
    let other = |arch: &str| archs.iter().all(|own| own.name() != arch);
    let kept = read(directory, &part.name)?.unwrap_or_default().filtered(|arch, _| other(arch));
    let path = path(directory, &part.name);
    let text = kept.merged(of(manifest, part, archs)).to_string();
    let written = std::fs::create_dir_all(directory).and_then(|()| files::write_whole(&path, text.as_bytes()));
    written.map_err(|error| LockFileError::Write { path, error })
}

/// Compares a build with the locks of its parts, on its architectures. Kernels that no program embeds are not locked.
///
/// # Errors
/// [`LockFileError`] if a lock file cannot be used.
pub fn compare<'p>(
    manifest: &Manifest,
    parts: &'p [Part],
    archs: &[Arch],
    directory: &Path,
) -> Result<Comparison<'p>, LockFileError> {
    let mut comparison = Comparison::default();
    let wanted = |arch: &str| archs.iter().any(|wanted| wanted.name() == arch);
    let locked = |arch: &str| Arch::GPUS.iter().any(|target| target.name() == arch);
    for part in parts {
        let Some(lock) = read(directory, &part.name)? else {
            comparison.unlocked.push(part);
            continue;
        };
        let built = of(manifest, part, archs).filtered(|arch, _| locked(arch));
        let lock = match part.strictness {
            Strictness::Shared => select(&lock, &part.keys, archs),
            Strictness::Required | Strictness::Optional => lock.filtered(|arch, _| wanted(arch)),
        };
        comparison.changes.extend(lock.compare(&built));
    }
    comparison.changes.sort_by_key(ToString::to_string);
    comparison.changes.dedup();
    Ok(comparison)
}
