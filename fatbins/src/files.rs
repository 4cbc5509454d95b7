//! Files and directories that are whole or not there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Bytes free for this user on the file system a path is on; none where the system does not say.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(path).ok()?;
    status.f_bavail.checked_mul(status.f_frsize)
}

/// The directory a path lies in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file aside, flushes it to disk and renames it into place: readers see the old content or the new,
/// never a part. Makes the directory it lies in.
///
/// # Errors
/// Any I/O error; the old file is then still there and nothing is left aside.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(parent(path))?;
    let mut aside = tempfile::Builder::new().prefix(".partial-").tempfile_in(parent(path))?;
    aside.write_all(bytes)?;
    aside.as_file().sync_all()?;
    readable(aside.path(), 0o644)?;
    aside.persist(path).map_err(|error| error.error)?;
    File::open(parent(path))?.sync_all()
}

/// Fills a directory aside, flushes it to disk and renames it into place, replacing what was there.
///
/// # Errors
/// Any I/O error or the error of `fill`; the old directory is then still there and nothing is left aside.
pub fn write_directory<E: From<io::Error>>(path: &Path, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    fs::create_dir_all(parent(path))?;
    let aside = tempfile::Builder::new().prefix(".partial-").tempdir_in(parent(path))?;
    fill(aside.path())?;
    flush(aside.path())?;
    if path.exists() {
        // The old one moves out of the way whole; it is deleted with its temporary name.
        let old = tempfile::Builder::new().prefix(".replaced-").tempdir_in(parent(path))?;
        fs::rename(path, old.path().join("old"))?;
        fs::rename(aside.keep(), path)?;
    } else {
        fs::rename(aside.keep(), path)?;
    }
    File::open(parent(path))?.sync_all()?;
    Ok(())
}

/// Flushes a directory and all it holds to disk, readable for everybody.
fn flush(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            flush(&path)?;
        } else {
            readable(&path, 0o644)?;
            File::open(path)?.sync_all()?;
        }
    }
    readable(directory, 0o755)?;
    File::open(directory)?.sync_all()
}

/// Temporary files are private; what they become is not.
fn readable(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

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
