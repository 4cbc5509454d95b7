//! Writes files and directories whole.

use std::io::{self, Write};
use std::path::Path;

use super::aside::{Aside, Existing};
use super::aside_file::AsideFile;

/// Returns the bytes free for this user on a path's file system; none if the system does not tell.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(path).ok()?;
    status.f_bavail.checked_mul(status.f_frsize)
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

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    pub(in crate::files) fn names(directory: &Path) -> Vec<String> {
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
