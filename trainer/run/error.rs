//! Why an output directory, or a run in it, must not be used.

use std::path::{Path, PathBuf};

use precast_runtime::DriverError;
use precast_system::files::ListingError;

use crate::base::io::IoError;
use crate::inputs::checkpoint::CheckpointError;
use crate::ranks::RankError;

/// An output directory that must not be used as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum OutError {
    /// Another process uses it.
    #[error(
        "{} is in use by another run{}: wait for it, or choose another --out",
        path.display(),
        pid.map(|pid| format!(", process {pid}")).unwrap_or_default()
    )]
    Busy { path: PathBuf, pid: Option<u32> },
    /// It is no longer the directory that this process has claimed.
    #[error(
        "{} was moved or removed while this run was in it: nothing more is written there. Its last checkpoint is where the \
         directory is now: --resume with that as --out continues it",
        path.display()
    )]
    Gone { path: PathBuf },
    /// It holds something, or nothing, that does not go with what is asked for.
    #[error("{0}")]
    Unfit(String),
    /// The file system refuses.
    #[error(transparent)]
    Io(IoError),
}

impl OutError {
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = IoError::of(what, path);
        move |error| Self::Io(named(error))
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

/// Errors of the files that a run leaves.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum RunError {
    /// It is not there, or not as it was written.
    #[error("{0}")]
    Unusable(String),
    /// The directory must not be used so.
    Out(#[from] OutError),
    /// A file cannot be read or written.
    Io(#[from] IoError),
    /// A file does not hold what a run wrote.
    Checkpoint(#[from] CheckpointError),
    /// The device or its driver failed.
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
}
