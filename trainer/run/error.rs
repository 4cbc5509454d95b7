//! Why an output directory, or a run in it, must not be used.

use std::path::{Path, PathBuf};

use precast_runtime::DriverError;
use precast_system::files::ListingError;

use crate::base::io::IoError;
use crate::inputs::checkpoint::CheckpointError;
use crate::options::Advised;
use crate::ranks::RankError;

/// An output directory that must not be used as it is asked for, or files of a run that cannot be.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum RunError {
    /// Another process uses the directory.
    #[error(
        "{} is in use by another run{}: wait for it, or choose another --out",
        path.display(),
        pid.map(|pid| format!(", process {pid}")).unwrap_or_default()
    )]
    Busy { path: PathBuf, pid: Option<u32> },
    /// It is no longer the directory that this process has claimed.
    #[error(
        "{} was moved or removed while this run was in it: nothing more is written there. Its last checkpoint is \
        where the \
         directory is now: --resume with that as --out continues it",
        path.display()
    )]
    Gone { path: PathBuf },
    /// It holds something, or nothing, that does not go with what is asked for.
    #[error("{0}")]
    Unfit(String),
    /// The file system refuses the directory: no other rank is why.
    Directory(IoError),
    /// A file is not there, or not as it was written.
    #[error("{0}")]
    Unusable(String),
    /// A file cannot be read or written.
    Io(#[from] IoError),
    /// A file does not hold what a run wrote.
    Checkpoint(#[from] CheckpointError),
    /// The device or its driver failed.
    #[error("{}", .0.advised())]
    Driver(#[from] DriverError),
    /// Another rank failed.
    Rank(#[from] RankError),
}

impl RunError {
    /// Names what the system was asked for.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = IoError::of(what, path);
        move |error| named(error).into()
    }

    /// Names what the system was asked for, of the directory itself.
    pub(super) fn directory(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = IoError::of(what, path);
        move |error| Self::Directory(named(error))
    }

    /// Refuses what is no directory.
    pub(super) fn no_directory(path: &Path) -> Self {
        Self::Unfit(format!("{} is not a directory: choose another --out", path.display()))
    }

    /// Refuses to replace or delete what a run did not write.
    pub(super) fn not_ours(error: ListingError) -> Self {
        Self::Unfit(format!("{error}\nNothing was changed. Move it away, or choose another --out"))
    }

    /// Refuses to continue where there is no checkpoint; `advice` is behind how to start.
    pub fn no_checkpoint(path: &Path, advice: &str) -> Self {
        let path = path.display();
        Self::Unfit(format!("--resume: no checkpoint at {path}; start the run without --resume{advice}"))
    }
}
