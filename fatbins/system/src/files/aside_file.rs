//! Fills a file beside its target, then moves it there whole.
//!
//! It is named like a directory aside, and locked like one: the next process that writes to the same target removes
//! what a killed one left.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::NamedTempFile;

use super::aside::{self, Existing};
use super::changes::{parent, placing, readable, sync};
use super::fault;

/// A file aside of its target. Dropping it unpublished removes it.
#[derive(Debug)]
pub struct AsideFile {
    file: NamedTempFile,
    target: PathBuf,
}

impl Write for AsideFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        fault::write(self.file.as_file_mut(), bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsideFile {
    /// Creates an empty file aside of `target`, after it removes what killed processes left. Creates the parent
    /// directory too.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn new(target: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent(target))?;
        aside::remove_unused_files(target)?;
        Self::create(target)
    }

    /// Like [`Self::new`], but leaves the files of killed processes where they are.
    pub(super) fn create(target: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent(target))?;
        fault::point()?;
        let file = tempfile::Builder::new().prefix(&aside::prefix(target)).tempfile_in(parent(target))?;
        // Without locks, leftovers look like files in use, and stay.
        let _ = flock(file.as_file(), FlockOperation::NonBlockingLockExclusive);
        Ok(Self { file, target: target.to_owned() })
    }

    /// Flushes it to disk and moves it to its target.
    ///
    /// # Errors
    /// Any I/O error, also for a file that is there and is to stay; nothing is then left aside.
    pub fn publish(self, existing: Existing) -> io::Result<()> {
        let Self { file, target } = self;
        readable(file.path(), 0o644)?;
        fault::point()?;
        file.as_file().sync_all()?;
        fault::point()?;
        placing();
        match existing {
            Existing::Keep => file.persist_noclobber(&target),
            Existing::Replace => file.persist(&target),
        }
        .map_err(|error| error.error)?;
        sync(parent(&target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::whole::tests::names;

    #[test]
    fn a_file_appears_whole_and_replaces_nothing_that_stays() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("below/model.gguf");
        let mut first = AsideFile::new(&target).unwrap();
        first.write_all(b"one").unwrap();
        assert!(!target.exists());
        // It is in use: another writer leaves it alone.
        let mut second = AsideFile::new(&target).unwrap();
        second.write_all(b"two").unwrap();
        first.publish(Existing::Keep).unwrap();
        assert!(second.publish(Existing::Keep).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"one");
        assert_eq!(names(target.parent().unwrap()), ["model.gguf"]);
    }

    #[test]
    fn what_a_kill_left_of_a_file_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let foreign = [".precast-aside-other-abc123", ".precast-aside-model-notes", "model.old"];
        foreign.iter().chain(&[".precast-aside-model-abc123"]).for_each(|name| {
            fs::write(dir.path().join(name), "").unwrap();
        });
        drop(AsideFile::new(&dir.path().join("model")).unwrap());
        let mut left = foreign.map(str::to_owned);
        left.sort();
        assert_eq!(names(dir.path()), left);
    }
}
