//! Claims a path for one process at a time; the lock ends with its process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// A file that this process holds an `flock` on. It names the process, and is removed with the claim; after a kill it
/// stays, unlocked.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
}

/// A claim that was not taken.
#[derive(Debug)]
pub enum ClaimError {
    /// Another process holds it: its id, if the file has it.
    Held(Option<u32>),
    /// The file cannot be created or locked.
    Io(io::Error),
}

impl Claim {
    /// Takes the claim, or fails with its holder; never waits.
    ///
    /// # Errors
    /// [`ClaimError`] if another process holds it or the file cannot be created.
    pub fn take(path: &Path) -> Result<Self, ClaimError> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = locked(&mut options, path)?;
            // Its last holder may have removed the file between the two calls: then this lock is void.
            let mut claim = Self { file, path: path.to_owned() };
            if claim.holds() {
                claim.file.set_len(0).map_err(ClaimError::Io)?;
                writeln!(claim.file, "{}", std::process::id()).map_err(ClaimError::Io)?;
                return Ok(claim);
            }
        }
    }

    /// Fails where another process holds it, and changes nothing: to be taken, it need not be there.
    ///
    /// # Errors
    /// [`ClaimError`] if another process holds it or the file cannot be locked.
    pub fn check(path: &Path) -> Result<(), ClaimError> {
        match locked(OpenOptions::new().read(true), path) {
            Err(ClaimError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // Its lock ends here.
            locked => locked.map(drop),
        }
    }

    /// True if the file is still at its path: somebody may have moved or removed the directory around it.
    pub fn holds(&self) -> bool {
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::symlink_metadata(&self.path).map(id);
        self.file.metadata().map(id).is_ok_and(|locked| there.is_ok_and(|there| there == locked))
    }

    /// Records the new path after a rename of the directory around the file.
    pub fn moved(&mut self, path: PathBuf) {
        self.path = path;
    }
}

/// Opens a lock and locks it.
fn locked(options: &mut OpenOptions, path: &Path) -> Result<File, ClaimError> {
    // A link could lead to somebody else's file, which would be emptied.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let mut file = options.open(path).map_err(ClaimError::Io)?;
    let kind = file.metadata().map_err(ClaimError::Io)?;
    if !kind.is_file() || kind.nlink() > 1 {
        return Err(ClaimError::Io(io::Error::other("it is not a lock that Precast made: remove it")));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            Err(ClaimError::Held(text.trim().parse().ok()))
        }
        Err(error) => Err(ClaimError::Io(error.into())),
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed while locked: a process that opens it in between notices.
        if self.holds() {
            let _ = fs::remove_file(&self.path);
        }
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Claim::take(&path).unwrap();
        for held in [Claim::take(&path).map(drop), Claim::check(&path)] {
            let Err(ClaimError::Held(Some(pid))) = held else { panic!("held twice") };
            assert_eq!(pid, std::process::id());
        }
        drop(first);
        Claim::check(&path).unwrap();
        assert!(!path.exists());
        // Leftovers of a kill lock nothing, whatever they contain.
        fs::write(&path, "99999999999999\nmore").unwrap();
        Claim::check(&path).unwrap();
        assert!(fs::read(&path).unwrap().ends_with(b"more"));
        drop(Claim::take(&path).unwrap());
    }

    #[test]
    fn a_link_is_not_followed_and_a_claim_ends_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mine, moved) = (dir.path().join("lock"), dir.path().join("mine"), dir.path().join("moved"));
        fs::write(&mine, "precious").unwrap();
        std::os::unix::fs::symlink(&mine, &path).unwrap();
        assert!(matches!(Claim::take(&path), Err(ClaimError::Io(_))));
        fs::remove_file(&path).unwrap();
        fs::hard_link(&mine, &path).unwrap();
        assert!(matches!(Claim::take(&path), Err(ClaimError::Io(_))));
        assert_eq!(fs::read(&mine).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        // Another process's lock stays in place of a moved one.
        let first = Claim::take(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        let second = Claim::take(&path).unwrap();
        assert!(!first.holds() && second.holds());
        drop(first);
        assert!(path.exists());
    }
}
