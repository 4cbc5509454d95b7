//! Single changes of the disk, each a moment at which a kill may come.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{fault, limit};

static PLACED: AtomicBool = AtomicBool::new(false);

/// True once this process may have put something in its place. Files aside do not count.
pub fn has_placed() -> bool {
    PLACED.load(Ordering::Relaxed)
}

/// Records that something is about to be put in its place.
pub(super) fn placing() {
    PLACED.store(true, Ordering::Relaxed);
}

/// Returns a path's parent directory.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
    fault::point()?;
    file.set_len(bytes).map_err(limit::named)
}

/// Renames within one file system.
///
/// # Errors
/// Any I/O error.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fault::point()?;
    placing();
    fs::rename(from, to)
}

/// Removes a file; a missing one is no error.
///
/// # Errors
/// Any other I/O error.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fault::point()?;
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
    fault::point()?;
    File::open(path)?.sync_all()
}

/// Flushes a directory and its contents to disk, readable for everybody.
pub(super) fn flush(directory: &Path) -> io::Result<()> {
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
pub(super) fn readable(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
