//! Why a model cannot be read or written.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::fault::Fault;
use super::finite::NotFinite;
use crate::base::impostors::Disguise;

/// A model, an adapter or a pair of models that cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: std::io::Error },
    /// A GGUF or APR file is damaged or unsupported.
    #[error("{}: {fault}", path.display())]
    File { path: PathBuf, fault: Fault },
    /// A model, or a file of it, is not there, is damaged, or asks for what is not computed here.
    #[error("{0}")]
    Wrong(String),
    /// A weight is NaN or infinite.
    #[error("{}: {what}: the file is damaged or its training diverged: fetch or convert the model \
        again", path.display())]
    NotFinite { path: PathBuf, what: NotFinite },
    /// A weight to be written is NaN or infinite.
    #[error("{} is not written: {what}", path.display())]
    WouldNotBeFinite { path: PathBuf, what: NotFinite },
    /// The disk has less room than the model takes.
    #[error("{} has {free} bytes free and {what} takes {needed}: free some, or choose another --out", path.display())]
    Space {
        path: PathBuf,
        /// What is to be written.
        what: &'static str,
        needed: u64,
        free: u64,
    },
}

impl CheckpointError {
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { what, path, error }
    }

    /// The error for a file that cannot be used.
    pub fn of(path: &Path, reason: impl Display) -> Self {
        Self::Wrong(format!("{}: {reason}", path.display()))
    }

    /// The error for a file that is not what its name says.
    pub(super) fn disguised(path: &Path, what: Disguise) -> Self {
        Self::Wrong(format!("{} {what}", path.display()))
    }

    /// The error for tensors that are missing or have another shape than the configuration asks for: a line each.
    pub fn tensors(path: &Path, problems: &[String]) -> Self {
        let path = path.display();
        Self::Wrong(format!("{path} does not hold the model its config.json describes:\n{}", problems.join("\n")))
    }
}

impl Fault {
    /// Names the file.
    pub(super) fn at(self, path: impl Into<PathBuf>) -> CheckpointError {
        CheckpointError::File { path: path.into(), fault: self }
    }
}
