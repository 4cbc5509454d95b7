//! One process at a time, and no lock that outlives its process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A file that this process holds an `flock` on. It names the process, and is removed when the claim is given up; after
/// a kill it stays, and locks nothing.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
}

/// Why a claim was not taken.
#[derive(Debug)]
pub enum ClaimError {
    /// Another process holds it: its id, where the file says.
    Held(Option<u32>),
    /// The file cannot be made or locked.
    Io(io::Error),
}

impl Claim {
    /// Takes the claim or says who holds it. Waits for nobody.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn take(path: &Path) -> Result<Self, ClaimError> {
        loop {
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
            let mut file = options.map_err(ClaimError::Io)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let mut text = String::new();
                    let _ = file.read_to_string(&mut text);
                    return Err(ClaimError::Held(text.trim().parse().ok()));
                }
                Err(error) => return Err(ClaimError::Io(error.into())),
            }
            // Its last holder may have removed the file between the two calls: then this lock is on nothing.
            let locked = file.metadata().map_err(ClaimError::Io)?.ino();
            if fs::metadata(path).is_ok_and(|there| there.ino() == locked) {
                file.set_len(0).map_err(ClaimError::Io)?;
                writeln!(file, "{}", std::process::id()).map_err(ClaimError::Io)?;
                return Ok(Self { file, path: path.to_owned() });
            }
        }
    }

    /// The directory around the file has another name now.
    pub fn moved(&mut self, path: PathBuf) {
        self.path = path;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed while it is still locked: whoever opens it in between finds out.
        let _ = fs::remove_file(&self.path);
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
        let Err(ClaimError::Held(Some(pid))) = Claim::take(&path) else { panic!("held twice") };
        assert_eq!(pid, std::process::id());
        drop(first);
        assert!(!path.exists());
        // What a kill leaves locks nothing, whatever it holds.
        fs::write(&path, "99999999999999\nmore").unwrap();
        drop(Claim::take(&path).unwrap());
    }
}
