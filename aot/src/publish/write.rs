//! Publishes a bundle.

use precast_core::Registry;
use precast_fatbins::{Bundle, Digest, Lock};
use serde_json::{Value, json};

use super::content::{check_locks, gpus};
use super::error::PublishError;
use super::layout::Layout;
use super::names::{media, title};
use super::{provenance, sbom};

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
