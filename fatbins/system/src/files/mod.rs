//! Writes files and directories whole or not at all.

mod aside;
mod aside_file;
mod claim;
mod fault;
mod limit;
mod listing;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use precast_core::{Digest, Hasher};

use crate::input;

pub use aside::{Aside, Existing, Writer, asides, is_aside, remove_directory, sweep};
pub use aside_file::AsideFile;
pub use claim::{Claim, ClaimError};
pub use limit::{is_past_limit, outlive_limit};
pub use listing::{LISTING, Listing, ListingError, check_replaceable, walk};

/// Returns the bytes free for this user on a path's file system; none if the system does not tell.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(path).ok()?;
    status.f_bavail.checked_mul(status.f_frsize)
}

static PLACED: AtomicBool = AtomicBool::new(false);

/// True once this process may have put something in its place. Files aside do not count.
pub fn has_placed() -> bool {
    PLACED.load(Ordering::Relaxed)
}

/// Records that something is about to be put in its place.
fn placing() {
    PLACED.store(true, Ordering::Relaxed);
}

/// Returns a path's parent directory.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file aside, flushes it to disk and renames it into place: readers see the old content or the new, never a
/// part. Creates the parent directory.
///
/// # Errors
/// Any I/O error; the old file is then still there and nothing is left aside.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = AsideFile::create(path)?;
    aside.write_all(bytes)?;
    aside.publish(Existing::Replace)
}

/// Fills a directory aside, flushes it to disk and renames it into place, replacing the old one.
///
/// # Errors
/// Any I/O error or the error of `fill`; the old directory is then still there and nothing is left aside.
pub fn write_directory<E: From<io::Error>>(path: &Path, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    let aside = Aside::new(path)?;
    fill(aside.path())?;
    Ok(aside.publish(Existing::Replace)?)
}

/// Digests a file, read in parts.
///
/// # Errors
/// Any I/O error.
pub fn digest(path: &Path) -> io::Result<Digest> {
    let (mut file, mut hasher) = (input::open(path)?, Hasher::default());
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(hasher.digest()),
            Ok(read) => hasher.update(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Appends to a file that is read while it grows.
///
/// # Errors
/// Any I/O error.
pub fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    fault::write(file, bytes)
}

/// Truncates a file to this many bytes.
///
/// # Errors
/// Any I/O error.
pub fn truncate(file: &File, bytes: u64) -> io::Result<()> {
    fault::point();
    file.set_len(bytes).map_err(limit::named)
}

/// Renames within one file system.
///
/// # Errors
/// Any I/O error.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fault::point();
    placing();
    fs::rename(from, to)
}

/// Removes a file; a missing one is no error.
///
/// # Errors
/// Any other I/O error.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fault::point();
    match fs::remove_file(path) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Err(error),
        _ => Ok(()),
    }
}

/// Flushes a file or a directory's names to disk.
///
/// # Errors
/// Any I/O error.
pub fn sync(path: &Path) -> io::Result<()> {
    fault::point();
    File::open(path)?.sync_all()
}

/// Flushes a directory and its contents to disk, readable for everybody.
fn flush(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            flush(&path)?;
        } else {
            readable(&path, 0o644)?;
            sync(&path)?;
        }
    }
    readable(directory, 0o755)?;
    sync(directory)
}

/// Temporary files are private; published ones are not.
fn readable(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write_whole(&path, b"old").unwrap();
        assert!(write_whole(&path.join("below"), b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("student");
        let write = |content: &'static [u8], fail: bool| {
            write_directory::<io::Error>(&path, |aside| {
                fs::write(aside.join("file"), content)?;
                if fail { Err(io::Error::other("disk full")) } else { Ok(()) }
            })
        };
        assert!(write(b"broken", true).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        write(b"one", false).unwrap();
        assert!(write(b"broken", true).is_err());
        assert_eq!(fs::read(path.join("file")).unwrap(), b"one");
        write(b"two", false).unwrap();
        assert_eq!(fs::read(path.join("file")).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
