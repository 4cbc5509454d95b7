//! Errors of published layouts and bundles.

use std::io;
use std::path::PathBuf;

use precast_fatbins::{BundleError, Digest, ManifestError, SignatureError};

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

/// A bundle that cannot be published, or a layout that must not be used.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The layout is malformed or incomplete.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The bundle must not be used.
    #[error("precast.bundle: {0}")]
    Bundle(#[from] BundleError),
    /// No trusted key signed it.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A lock contradicts the bundle.
    #[error("{lock} does not match the bundle: {changes}")]
    Lock {
        /// File name of the lock.
        lock: String,
        /// Modules that differ.
        changes: String,
    },
    /// Provenance or bill of materials describes another bundle.
    #[error("{file} names SHA-256 {found}, the bundle has {expected}")]
    About {
        /// Name of the file.
        file: &'static str,
        /// Digest of the bundle.
        expected: Digest,
        /// Digest in the file.
        found: String,
    },
    /// A secret key cannot be used.
    #[error("cannot sign: {0}")]
    Sign(String),
}

impl From<ManifestError> for PublishError {
    fn from(error: ManifestError) -> Self {
        Self::Bundle(error.into())
    }
}

pub(super) fn malformed(file: &str, what: impl Into<String>) -> LayoutError {
    LayoutError::Malformed { file: file.to_owned(), what: what.into() }
}
