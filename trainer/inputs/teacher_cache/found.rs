//! What is in a directory that is to be filled.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use precast_system::files::{self, Claim, ClaimError, Listing};

use super::error::CacheError;
use super::layout::{FILLING, LOCK, MANIFEST, model};
use super::manifest::{self, Made, Manifest};

/// What is in a directory that is to be filled.
pub(super) enum Found {
    Nothing,
    Filling(Made),
    Complete,
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
    } else if !dir.join(LOCK).exists() {
        let found = look(dir)?;
        if matches!(found, Found::Complete) && !dir.join(FILLING).exists() {
            return Err(CacheError::Complete(dir.to_owned()));
        }
    }
    Claim::take(&dir.join(LOCK)).map_err(|error| match error {
        ClaimError::Held(pid) => CacheError::Busy { path: dir.to_owned(), pid },
        ClaimError::Io(error) => CacheError::io("lock", dir)(error),
    })
}

/// Looks what is in a directory.
///
/// # Errors
/// [`CacheError::NotACache`] for what is of somebody else; that of a file that cannot be read.
pub(super) fn look(dir: &Path) -> Result<Found, CacheError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(CacheError::NotACache(dir.to_owned())),
        entries => entries.map_err(CacheError::io("read", dir))?,
    };
    if manifest::read::<Manifest>(&dir.join(MANIFEST))?.is_some() {
        return Ok(Found::Complete);
    }
    if let Some(made) = manifest::read(&dir.join(FILLING))? {
        check_teacher(dir)?;
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
