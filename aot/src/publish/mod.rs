//! Publishes a bundle as an OCI image layout with locks, bill of materials, provenance and signatures; writing needs no
//! network, and everything is checked in full before it is installed.
//!
//! The layout holds one artifact manifest whose layers are the files, each named by its title, and, if signed, a second
//! manifest that refers to the first and carries the signature over its bytes: trust in the key covers every file.
//! `fatbins/README.md` lists media types and annotations.

mod archive;
mod error;
mod fetch;
mod layout;
mod provenance;
mod sbom;

use precast_core::{Arch, Registry};
use precast_fatbins::{Bundle, BundleError, Digest, Lock, ManifestError, SignatureError};
use serde_json::{Value, json};

use crate::compile::Task;

pub use error::LayoutError;
pub use fetch::{Fetched, check_replaceable, fetch};
pub use layout::Layout;

/// Names of the published files; a lock file is `<name>.lock`.
pub mod title {
    /// The bundle.
    pub const BUNDLE: &str = "precast.bundle";
    /// The signature over the bundle.
    pub const SIGNATURE: &str = "precast.bundle.minisig";
    /// CycloneDX list of components.
    pub const SBOM: &str = "precast.cdx.json";
    /// In-toto statement with SLSA provenance.
    pub const PROVENANCE: &str = "precast.provenance.json";
    /// The artifact's OCI manifest, installed beside its files.
    pub const MANIFEST: &str = "precast.manifest.json";
    /// The signature over the OCI manifest.
    pub const MANIFEST_SIGNATURE: &str = "manifest.minisig";
}

/// Media types of the published files.
pub mod media {
    /// An OCI image manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// The two bytes `{}`.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
    /// Artifact type of a published bundle.
    pub const ARTIFACT: &str = "application/vnd.precast.artifact.v1";
    /// Artifact type of a signature over a manifest.
    pub const ARTIFACT_SIGNATURE: &str = "application/vnd.precast.signature.v1";
    /// A bundle.
    pub const BUNDLE: &str = "application/vnd.precast.bundle.v1";
    /// A lock file.
    pub const LOCK: &str = "application/vnd.precast.lock.v1";
    /// A detached minisign signature.
    pub const MINISIGN: &str = "application/vnd.precast.minisign.v1";
    /// A CycloneDX list of components.
    pub const SBOM: &str = "application/vnd.cyclonedx+json";
    /// An in-toto statement.
    pub const PROVENANCE: &str = "application/vnd.in-toto+json";
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

/// Signs bytes and returns the text of a `.minisig`.
pub type Signer<'s> = &'s dyn Fn(&[u8]) -> Result<String, String>;

/// Publishes a verified bundle of a program's kernels and its locks, as (name, lock), into a layout.
///
/// # Errors
/// [`PublishError`] if the bundle is invalid or contradicts a lock.
pub fn publish(
    file: &[u8],
    kernels: &'static Registry,
    locks: &[(String, Lock)],
    sign: Option<Signer<'_>>,
) -> Result<Layout, PublishError> {
    let bundle = Bundle::read(file, kernels)?;
    bundle.verify()?;
    check_locks(&bundle, locks)?;
    let digest = Digest::of(file);
    let sign = |bytes: &[u8]| sign.map(|sign| sign(bytes).map_err(PublishError::Sign)).transpose();

    let mut layout = Layout::new();
    let mut layers = vec![layout.add(media::BUNDLE, title::BUNDLE, file)];
    if let Some(signature) = sign(file)? {
        layers.push(layout.add(media::MINISIGN, title::SIGNATURE, signature.as_bytes()));
    }
    for (name, lock) in locks {
        layers.push(layout.add(media::LOCK, &format!("{name}.lock"), lock.to_string().as_bytes()));
    }
    layers.push(layout.add(media::SBOM, title::SBOM, &pretty(&sbom::sbom(&bundle, digest))));
    layers.push(layout.add(media::PROVENANCE, title::PROVENANCE, &pretty(&provenance::statement(&bundle, digest)?)));

    let version = env!("CARGO_PKG_VERSION");
    let annotations = json!({
        "org.opencontainers.image.title": "precast kernels",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "dev.precast.manifest": bundle.digest().to_string(),
        "dev.precast.compiler": bundle.manifest().compiler,
        "dev.precast.archs": gpus(&bundle).iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        "dev.precast.built_for": bundle.manifest().built_for.join(","),
    });
    let manifest = layout.manifest(media::ARTIFACT, &layers, None, annotations);
    let bytes = manifest.to_string().into_bytes();
    let descriptor = layout.index(media::ARTIFACT, &bytes, version);
    if let Some(signature) = sign(&bytes)? {
        let layer = layout.add(media::MINISIGN, title::MANIFEST_SIGNATURE, signature.as_bytes());
        let signature = layout.manifest(media::ARTIFACT_SIGNATURE, &[layer], Some(&descriptor), json!({}));
        let tag = format!("sha256-{}.sig", Digest::of(&bytes));
        layout.index(media::ARTIFACT_SIGNATURE, signature.to_string().as_bytes(), &tag);
    }
    Ok(layout)
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("plain data serializes");
    text.push(b'\n');
    text
}

/// Returns the architectures of a bundle with machine code.
fn gpus(bundle: &Bundle<'_>) -> Vec<Arch> {
    bundle.archs().into_iter().filter(|arch| *arch != Arch::Sim).collect()
}

/// Returns every compilation behind a bundle.
fn tasks(bundle: &Bundle<'_>) -> Result<Vec<Task>, ManifestError> {
    let with_code = bundle.manifest().modules.iter().filter(|module| module.code.is_some());
    with_code.map(|module| module.typed(bundle.kernels()).map(|(pair, arch)| Task { pair, arch })).collect()
}

/// Checks that every lock line of the bundle's architectures matches the bundle.
fn check_locks(bundle: &Bundle<'_>, locks: &[(String, Lock)]) -> Result<(), PublishError> {
    let (archs, held) = (gpus(bundle), Lock::of(bundle.manifest()));
    for (name, lock) in locks {
        let lock = lock.filtered(|arch, _| archs.iter().any(|held| held.name() == arch));
        // Kernels absent from this lock belong to other locks.
        let changes: Vec<String> = lock
            .compare(&held)
            .iter()
            .filter(|change| !matches!(change, precast_fatbins::Change::Added(_)))
            .map(ToString::to_string)
            .collect();
        if !changes.is_empty() {
            return Err(PublishError::Lock { lock: format!("{name}.lock"), changes: changes.join(", ") });
        }
    }
    Ok(())
}
