//! Why a layout must not be used.

use std::io;
use std::path::PathBuf;

use precast_fatbins::Digest;

/// A layout that must not be used, or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("cannot {what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: io::Error },
    /// A file every layout has.
    #[error("not an OCI image layout: it has no {0}")]
    Missing(String),
    /// A file that is not what the specification says.
    #[error("{file}: {what}")]
    Malformed { file: String, what: String },
    /// A file is longer than it may be.
    #[error("{file} is {found} bytes; at most {limit} are read")]
    TooLarge {
        file: String,
        /// In the layout.
        found: u64,
        /// Of such a file.
        limit: u64,
    },
    /// The path holds something that this program has not written, or that was changed since.
    #[error(
        "{} is not replaced: {what}\nprecast-aot replaces only what it wrote: choose another --to, or move this away",
        path.display()
    )]
    NotOurs {
        /// The path that would be replaced.
        path: PathBuf,
        /// The name of the foreign entry.
        what: String,
    },
    /// A blob was altered.
    #[error("blob {expected} has SHA-256 {found}")]
    Digest { expected: Digest, found: Digest },
    /// A blob is not as long as its descriptor says.
    #[error("blob {digest} is {found} bytes, its descriptor says {expected}")]
    Size {
        digest: Digest,
        /// The descriptor's digest.
        expected: u64,
        /// In the layout.
        found: u64,
    },
}

pub(super) fn malformed(file: &str, what: impl Into<String>) -> LayoutError {
    LayoutError::Malformed { file: file.to_owned(), what: what.into() }
}
