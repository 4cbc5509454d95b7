//! Looks into a directory that is to be filled.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use precast_system::files::{self, Claim, ClaimError, Listing};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::CacheError;
use super::layout::{FILLING, HIDDEN, INDEX, LOCK, MANIFEST, model};
use super::manifest::{self, CacheManifest, Made};

/// Content of a directory that is to be filled.
pub(super) enum Found {
    Nothing,
    Filling(Made),
    Complete(CacheManifest),
}

/// Refuses to continue what is filled from something else.
pub(super) fn refuse_another(dir: &Path, made: &Made, was: &Made) -> Result<(), CacheError> {
    let differences = made.differences(was);
    if differences.is_empty() { Ok(()) } else { Err(CacheError::Different { path: dir.to_owned(), differences }) }
}

/// Claims a directory, which it makes. Nothing is written to one that holds something else, not even a lock.
pub(super) fn claim(dir: &Path) -> Result<Claim, CacheError> {
    if fs::symlink_metadata(dir).is_err() {
        fs::create_dir_all(dir).map_err(CacheError::io("create", dir))?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        files::sync(parent).map_err(CacheError::io("flush", parent))?;
    } else if !dir.join(LOCK).exists()
        && let Found::Complete(_) = look(dir)?
    {
        return Err(CacheError::Complete(dir.to_owned()));
    }
    take(dir)
}

/// Takes the lock of a directory.
pub(super) fn take(dir: &Path) -> Result<Claim, CacheError> {
    Claim::take(&dir.join(LOCK)).map_err(in_use(dir))
}

/// Refuses a directory that another process fills.
pub(super) fn refuse_claimed(dir: &Path) -> Result<(), CacheError> {
    Claim::check(&dir.join(LOCK)).map_err(in_use(dir))
}

fn in_use(dir: &Path) -> impl FnOnce(ClaimError) -> CacheError {
    move |error| match error {
        ClaimError::Held(pid) => CacheError::Busy { path: dir.to_owned(), pid },
        ClaimError::Io(error) => CacheError::io("lock", dir)(error),
    }
}

/// Refuses a complete cache, unless the filling that completed it is this one and was killed before it had removed its
/// own files.
pub(super) fn refuse_complete(dir: &Path, made: &Made, manifest: &CacheManifest) -> Result<(), CacheError> {
    let is_left = [FILLING, LOCK].iter().any(|name| dir.join(name).exists());
    if is_left && manifest.made == *made { Ok(()) } else { Err(CacheError::Complete(dir.to_owned())) }
}

/// Tells a complete cache, a filling and an empty directory apart.
///
/// # Errors
/// [`CacheError::NotACache`] where the directory holds anything else, and those of I/O.
pub(super) fn look(dir: &Path) -> Result<Found, CacheError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(CacheError::NotACache(dir.to_owned())),
        entries => entries.map_err(CacheError::io("read", dir))?,
    };
    if let Some(manifest) = own(dir, MANIFEST)? {
        return Ok(Found::Complete(manifest));
    }
    if let Some(made) = own(dir, FILLING)? {
        check_teacher(dir)?;
        [HIDDEN, INDEX].into_iter().try_for_each(|name| check_regular(&dir.join(name)))?;
        return Ok(Found::Filling(made));
    }
    for entry in entries {
        let name = entry.map_err(CacheError::io("read", dir))?.file_name();
        if !name.to_str().is_some_and(|name| name == LOCK || files::is_aside(name)) {
            return Err(CacheError::NotACache(dir.to_owned()));
        }
    }
    Ok(Found::Nothing)
}

/// Reads a manifest. One that no filling has written is somebody else's: nobody is told to remove it.
fn own<T: Serialize + DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, CacheError> {
    manifest::read(&dir.join(name)).map_err(|error| match error {
        CacheError::Damaged { .. } | CacheError::Format { .. } => CacheError::NotACache(dir.to_owned()),
        error => error,
    })
}

/// Refuses what is no regular file: a link would be followed to somebody else's file, which would be truncated.
fn check_regular(path: &Path) -> Result<(), CacheError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(CacheError::NotACache(path.to_owned())),
        _ => Ok(()),
    }
}

/// Refuses a teacher's directory with names that no filling has listed: one that continues replaces all of it.
fn check_teacher(dir: &Path) -> Result<(), CacheError> {
    let teacher = model(dir);
    let is_ours = match fs::symlink_metadata(&teacher) {
        Err(error) => error.kind() == ErrorKind::NotFound,
        Ok(metadata) if !metadata.is_dir() => false,
        Ok(_) => Listing::read(&teacher).and_then(|listing| listing.check_names(&teacher)).is_ok(),
    };
    if is_ours { Ok(()) } else { Err(CacheError::NotACache(teacher)) }
}
