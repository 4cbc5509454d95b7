//! Errors of bundles.

use crate::cubin::CubinError;
use crate::foreign::Foreign;
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
    /// The file is no bundle, or is truncated.
    #[error("not a bundle ({0}): it is another file or truncated; precast-aot build writes one")]
    Elf(#[from] object::read::Error),
    /// A section is missing or repeated.
    #[error("section {name} occurs {found} times, expected once")]
    Section {
        /// Name of the section.
        name: &'static str,
        /// Number of such sections.
        found: usize,
    },
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Sizes in the manifest and in the file disagree.
    #[error("section {FATBIN_SECTION} is {found} bytes, the manifest adds up to {expected}")]
    Size {
        /// In the manifest.
        expected: u64,
        /// In the file.
        found: u64,
    },
    /// Bytes between the cubins are not what the manifest implies.
    #[error("section {FATBIN_SECTION} differs from its canonical encoding at offset {offset} (in {module})")]
    Layout {
        /// Place in the file, bytes.
        offset: u64,
        /// The module before or around these bytes.
        module: String,
    },
    /// The file differs from its own re-encoding.
    #[error("file differs from its canonical encoding at offset {offset}")]
    NotCanonical {
        /// First byte that differs.
        offset: usize,
    },
    /// A cubin was altered.
    #[error("{module}: cubin at offset {offset} has SHA-256 {found}, the manifest says {expected}")]
    Digest {
        /// Key, variant and architecture of the module.
        module: String,
        /// Its offset in the section.
        offset: u64,
        /// In the manifest.
        expected: Digest,
        /// In the file.
        found: Digest,
    },
    /// A cubin is not readable.
    #[error("{module}: {source}")]
    Cubin {
        /// Key, variant and architecture of the module.
        module: String,
        /// Its fault.
        source: CubinError,
    },
    /// The bundle is another program's, or of another format or core.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// Every kernel whose sources are not this program's.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// A cubin contradicts the manifest or its key.
    #[error("{module}: {what} is {found}, expected {expected}")]
    Claim {
        /// Key, variant and architecture of the module.
        module: String,
        /// Fact that differs.
        what: &'static str,
        /// In the manifest or the key.
        expected: String,
        /// In the cubin or the manifest.
        found: String,
    },
}
