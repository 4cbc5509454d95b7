//! Why a bundle must not be used.

use crate::cubin::CubinError;
use crate::manifest::ManifestError;
use crate::stale::Stale;
use crate::trust::SignatureError;
use crate::{Digest, FATBIN_SECTION};

/// A bundle that must not be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// No trusted key signed the file.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The file is no bundle, or is cut short.
    #[error("not a bundle ({0}): it is another file or cut short; precast-aot build writes one")]
    Elf(String),
    /// A section is not there exactly once.
    #[error("section {name} occurs {found} times, expected once")]
    Section {
        name: &'static str,
        /// How often it is there.
        found: usize,
    },
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Sizes in the manifest and in the file disagree.
    #[error("section {FATBIN_SECTION} is {found} bytes, the manifest adds up to {expected}")]
    Size {
        /// By the manifest.
        expected: u64,
        /// In the file.
        found: u64,
    },
    /// Bytes between the cubins are not what the manifest implies.
    #[error("section {FATBIN_SECTION} differs from its canonical encoding at offset {offset} (in {module})")]
    Layout {
        offset: u64,
        /// The module before or around it.
        module: String,
    },
    /// The file has bytes that its own re-encoding has not.
    #[error("file differs from its canonical encoding at offset {offset}")]
    NotCanonical { offset: usize },
    /// A cubin was altered.
    #[error("{module}: cubin at offset {offset} has SHA-256 {found}, the manifest says {expected}")]
    Digest {
        module: String,
        /// Its offset in the section.
        offset: u64,
        /// By the manifest.
        expected: Digest,
        /// In the file.
        found: Digest,
    },
    /// A cubin is not readable.
    #[error("{module}: {source}")]
    Cubin { module: String, source: CubinError },
    /// Kernels are of other sources than this program's: all of them.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// A cubin is not what the manifest, or its key, says.
    #[error("{module}: {what} is {found}, expected {expected}")]
    Claim {
        module: String,
        what: &'static str,
        /// By the manifest or the key.
        expected: String,
        /// By the cubin, or by the manifest.
        found: String,
    },
}
