//! Names and media types of the published files.

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
