//! Why an output directory must not be used.

use std::io;
use std::path::{Path, PathBuf};

use precast_system::files::ListingError;

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
    /// There are files in it.
    #[error(
        "{} is not empty (it holds {holds}): --resume continues the run in it, --overwrite replaces it; or choose another --out",
        path.display()
    )]
    NotEmpty {
        path: PathBuf,
        /// A file in it.
        holds: String,
    },
    /// There is something where a directory is to be written whole.
    #[error(
        "{} is not empty (it holds {holds}): --overwrite replaces what Precast wrote; or choose another --out",
        path.display()
    )]
    Occupied {
        path: PathBuf,
        /// A file in it.
        holds: String,
    },
    /// It is no directory.
    #[error("{} is not a directory: choose another --out", path.display())]
    NoDirectory { path: PathBuf },
    /// There is nothing to continue.
    #[error("--resume: {reason} at {}; start the run without --resume{}", path.display(), if *run { ", with --overwrite" } else { "" })]
    Nothing {
        path: PathBuf,
        /// `no run`, `no checkpoint`.
        reason: &'static str,
        /// Whether there is a run.
        run: bool,
    },
    /// It is no longer the directory that this process has claimed.
    #[error(
        "{} was moved or removed while this run was in it: nothing more is written there. Its last checkpoint is where the \
         directory is now: --resume with that as --out continues it",
        path.display()
    )]
    Gone { path: PathBuf },
    /// An input would be deleted.
    #[error(
        "{} lies in {}, which this run replaces and deletes at its first checkpoint: move it away, or choose another --out",
        input.display(),
        path.display()
    )]
    Replaced { input: PathBuf, path: PathBuf },
    /// An input would be among the outputs.
    #[error("{} lies in --out {}: an input is never overwritten; choose another --out", input.display(), path.display())]
    Input { input: PathBuf, path: PathBuf },
    /// Something in it is not what a run wrote.
    #[error("{0}\nNothing was changed. Move it away, or choose another --out")]
    NotOurs(ListingError),
    /// The file system refuses.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// make, lock, move.
        what: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

impl OutError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { what, path, error }
    }
}
