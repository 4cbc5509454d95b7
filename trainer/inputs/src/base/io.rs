//! Errors of the operating system, with what it was asked for.

use std::io;
use std::path::PathBuf;

/// A file that cannot be read or written, or something else that the system does not give.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {error}", path.display())]
pub struct IoError {
    /// read, write, create.
    pub what: &'static str,
    pub path: PathBuf,
    pub error: io::Error,
}

impl IoError {
    /// Names what the system was asked for.
    pub fn of(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self { what, path, error }
    }
}
