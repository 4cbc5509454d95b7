//! Fills directories beside their target, then moves them there whole.
//!
//! A directory aside of `NAME` is called `.precast-aside-NAME-` and six letters or digits, or `.precast-aside-NAME-old`
//! for a moment if the file system cannot exchange two directories. The process that fills it holds an `flock` on it,
//! which tells it from the leftovers of a killed process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use precast_core::{Digest, Hasher};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::changes::{flush, parent, placing, rename, sync};
use super::fault;
use super::listing::{LISTING, Listing};

/// Treatment of a directory already at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and publishing fails unless it is empty.
    Keep,
    /// It is replaced, atomically if the file system can, and then removed.
    Replace,
}

/// A directory aside of its target. Dropping it unpublished removes it.
#[derive(Debug)]
pub struct Aside {
    path: PathBuf,
    target: PathBuf,
    listing: Listing,
    published: bool,
    _lock: File,
}

/// A file written and hashed at once.
pub struct Writer {
    name: String,
    file: File,
    hasher: Hasher,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        fault::write(&mut self.file, bytes)?;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Aside {
    /// Creates an empty directory aside of `target`, after it settles leftovers of killed processes. Creates the parent
    /// directory too.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn new(target: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent(target))?;
        settle(target)?;
        fault::point()?;
        let path = tempfile::Builder::new().prefix(&prefix(target)).tempdir_in(parent(target))?.keep();
        let lock = File::open(&path)?;
        // Without directory locks, leftovers look like directories in use, and stay.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let (target, listing) = (target.to_owned(), Listing::default());
        Ok(Self { path, target, listing, published: false, _lock: lock })
    }

    /// Opens another process's directory aside of `target`, to add files. [`Self::leave`] returns it.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn within(path: &Path, target: &Path) -> io::Result<Self> {
        let (path, target) = (path.to_owned(), target.to_owned());
        Ok(Self { _lock: File::open(&path)?, path, target, listing: Listing::default(), published: true })
    }

    /// Flushes the files added to another process's directory. Returns their names and digests.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn leave(self) -> io::Result<Listing> {
        for name in self.listing.0.keys() {
            File::open(self.path.join(name))?.sync_all()?;
        }
        Ok(self.listing.clone())
    }

    /// Lists files that other processes have added.
    pub fn include(&mut self, files: Listing) {
        self.listing.0.extend(files.0);
    }

    /// Returns its current path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path to publish it at.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Creates a file, to be passed to [`Self::close`] once written.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn create(&self, name: &str) -> io::Result<Writer> {
        fault::point()?;
        let file = File::create(self.path.join(name))?;
        Ok(Writer { name: name.to_owned(), file, hasher: Hasher::default() })
    }

    /// Lists a written file.
    pub fn close(&mut self, writer: Writer) {
        self.listing.0.insert(writer.name, writer.hasher.digest());
    }

    /// Creates and lists a file with these bytes.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut writer = self.create(name)?;
        writer.write_all(bytes)?;
        self.close(writer);
        Ok(())
    }

    /// Writes the listing of its files into it. Returns the listing, which includes itself.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn list(&mut self) -> io::Result<Listing> {
        let text = self.listing.text();
        fault::write(&mut File::create(self.path.join(LISTING))?, text.as_bytes())?;
        let mut all = self.listing.clone();
        all.0.insert(LISTING.to_owned(), Digest::of(text.as_bytes()));
        Ok(all)
    }

    /// Flushes it to disk.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn flush(&self) -> io::Result<()> {
        flush(&self.path)
    }

    /// Flushes it to disk and moves it to its target.
    ///
    /// # Errors
    /// Any I/O error; the old directory is then still there.
    pub fn publish(self, existing: Existing) -> io::Result<()> {
        self.publish_by(existing, exchange)
    }

    fn publish_by(mut self, existing: Existing, exchange: fn(&Path, &Path) -> io::Result<bool>) -> io::Result<()> {
        flush(&self.path)?;
        let there = existing == Existing::Replace && fs::symlink_metadata(&self.target).is_ok();
        if !there {
            // Replaces an empty directory and nothing else.
            rename(&self.path, &self.target)?;
        } else if exchange(&self.path, &self.target)? {
            // Its path now holds the old directory, which a kill from here on leaves for removal.
            sync(parent(&self.target))?;
            remove_all(&self.path)?;
        } else {
            let old = old_name(&self.target);
            rename(&self.target, &old)?;
            rename(&self.path, &self.target)?;
            sync(parent(&self.target))?;
            remove_all(&old)?;
        }
        self.published = true;
        sync(parent(&self.target))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Exchanges two names atomically; false if the file system cannot.
fn exchange(a: &Path, b: &Path) -> io::Result<bool> {
    fault::point()?;
    placing();
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn remove_all(path: &Path) -> io::Result<()> {
    fault::point()?;
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Prefix of asides' names, used by no other file.
const PREFIX: &str = ".precast-aside-";

/// Returns the prefix of everything aside of a target.
pub(super) fn prefix(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    // Names are limited to 255 bytes.
    let end = (0..=name.len().min(200)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    format!("{PREFIX}{}-", &name[..end])
}

fn old_name(target: &Path) -> PathBuf {
    parent(target).join(format!("{}old", prefix(target)))
}

/// True for the name of anything aside.
pub fn is_aside(name: &str) -> bool {
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('-'));
    parts.is_some_and(|(target, end)| {
        !target.is_empty() && (end == "old" || end.len() == 6 && end.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    })
}

/// Removes a directory under another name, so that a kill leaves no partial directory.
///
/// # Errors
/// Any I/O error.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    let aside = parent(path).join(format!("{}remove", prefix(path)));
    rename(path, &aside)?;
    remove_all(&aside)
}

/// Returns everything aside of a directory: leftovers of killed processes, and directories being filled.
///
/// # Errors
/// Any I/O error.
pub fn asides(target: &Path) -> io::Result<Vec<PathBuf>> {
    entries_aside(target, fs::FileType::is_dir)
}

/// Removes files aside of a target that no process writes.
pub(super) fn remove_unused_files(target: &Path) -> io::Result<()> {
    let files = entries_aside(target, fs::FileType::is_file)?;
    files.into_iter().filter(|file| unused(file)).try_for_each(|file| remove_all(&file))
}

fn entries_aside(target: &Path, is_wanted: fn(&fs::FileType) -> bool) -> io::Result<Vec<PathBuf>> {
    let prefix = prefix(target);
    let mut found = Vec::new();
    for entry in fs::read_dir(parent(target))? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let ours = name.strip_prefix(&prefix).is_some_and(|end| end.len() == 6) && is_aside(name);
        if ours && is_wanted(&entry.file_type()?) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Settles leftovers of a directory: one moved out of the way and never replaced goes back; partial and replaced ones
/// are removed.
fn settle(target: &Path) -> io::Result<()> {
    let old = old_name(target);
    if fs::symlink_metadata(&old).is_ok() {
        match fs::symlink_metadata(target) {
            Ok(_) => remove_all(&old)?,
            Err(_) => rename(&old, target)?,
        }
    }
    for aside in asides(target)? {
        if unused(&aside) {
            remove_all(&aside)?;
        }
    }
    Ok(())
}

fn unused(aside: &Path) -> bool {
    File::open(aside).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Settles leftovers, directories and files, in a directory that only this process uses.
///
/// # Errors
/// Any I/O error.
pub fn sweep(directory: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.extend(entry?.file_name().to_str().filter(|name| is_aside(name)).map(str::to_owned));
    }
    for name in names {
        let path = directory.join(&name);
        let target = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix("-old"));
        match target.map(|target| directory.join(target)) {
            Some(target) if fs::symlink_metadata(&target).is_err() => rename(&path, &target)?,
            _ => remove_all(&path)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::whole::tests::names;

    fn filled(target: &Path, content: &[u8]) -> Aside {
        let mut aside = Aside::new(target).unwrap();
        aside.write("file", content).unwrap();
        aside.list().unwrap();
        aside
    }

    #[test]
    fn what_is_there_stays_unless_it_is_to_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        fs::create_dir(&target).unwrap();
        filled(&target, b"one").publish(Existing::Keep).unwrap();
        assert!(filled(&target, b"two").publish(Existing::Keep).is_err());
        assert_eq!(fs::read(target.join("file")).unwrap(), b"one");
        filled(&target, b"two").publish(Existing::Replace).unwrap();
        assert_eq!(fs::read(target.join("file")).unwrap(), b"two");
        Listing::read(&target).unwrap().check(&target).unwrap();
        assert_eq!(names(dir.path()), ["model"]);
    }

    #[test]
    fn a_file_system_that_cannot_exchange_gets_two_renames() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        for content in [b"one", b"two"] {
            filled(&target, content).publish_by(Existing::Replace, |_, _| Ok(false)).unwrap();
            assert_eq!(fs::read(target.join("file")).unwrap(), content);
        }
        assert_eq!(names(dir.path()), ["model"]);
    }

    #[test]
    fn what_a_kill_left_is_settled_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        for foreign in [
            ".partial-x",
            ".precast-aside-model",
            ".precast-aside-model-notes",
            ".precast-aside-other-abc123",
            ".precast-my-backup",
            ".replaced-1",
        ] {
            fs::create_dir(dir.path().join(foreign)).unwrap();
        }
        let foreign = names(dir.path());
        // Killed between the two renames: the old directory goes back.
        filled(&target, b"one").publish(Existing::Keep).unwrap();
        fs::rename(&target, old_name(&target)).unwrap();
        fs::create_dir(dir.path().join(".precast-aside-model-abc123")).unwrap();
        drop(Aside::new(&target).unwrap());
        assert_eq!(fs::read(target.join("file")).unwrap(), b"one");
        // Killed after them: the old directory is removed.
        fs::create_dir(old_name(&target)).unwrap();
        drop(Aside::new(&target).unwrap());
        assert_eq!(names(dir.path()), [foreign, vec!["model".to_owned()]].concat());
        // A directory being filled stays.
        let (first, second) = (Aside::new(&target).unwrap(), Aside::new(&target).unwrap());
        assert!(first.path().exists() && second.path().exists());
    }
}
