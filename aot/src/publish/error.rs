//! Errors of published layouts.

use std::io;
use std::path::PathBuf;

use precast_fatbins::Digest;

/// A layout that must not be used, or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The system refuses a file.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// Action that failed.
        what: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A mandatory file is missing.
    #[error("not an OCI image layout: it has no {0}")]
    Missing(String),
    /// A file violates the specification.
    #[error("{file}: {what}")]
    Malformed {
        /// Name of the file.
        file: String,
        /// Its first fault.
        what: String,
    },
    /// A file exceeds its limit.
    #[error("{file} is {found} bytes; at most {limit} are read")]
    TooLarge {
        /// Name of the file.
        file: String,
        /// Size in the layout, bytes.
        found: u64,
        /// Limit of such a file, bytes.
        limit: u64,
    },
    /// The path holds something that this program did not write, or that changed since.
    #[error(
        "{} is not replaced: {what}\nprecast-aot replaces only what it wrote: choose another --to, or move this away",
        path.display()
    )]
    NotOurs {
        /// Path to be replaced.
        path: PathBuf,
        /// Name of the foreign entry.
        what: String,
    },
    /// A blob's digest differs from its descriptor's.
    #[error("blob {expected} has SHA-256 {found}")]
    Digest {
        /// Digest that names the blob.
        expected: Digest,
        /// Digest of its bytes.
        found: Digest,
    },
    /// A blob's size differs from its descriptor's.
    #[error("blob {digest} is {found} bytes, its descriptor says {expected}")]
    Size {
        /// Digest that names the blob.
        digest: Digest,
        /// Size in the descriptor, bytes.
        expected: u64,
        /// Size in the layout, bytes.
        found: u64,
    },
}

pub(super) fn malformed(file: &str, what: impl Into<String>) -> LayoutError {
    LayoutError::Malformed { file: file.to_owned(), what: what.into() }
}
