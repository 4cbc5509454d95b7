//! Taking a published bundle in: everything is checked in memory, then installed whole.

use std::collections::BTreeMap;
use std::path::Path;

use precast_fatbins::{Bundle, Digest, Lock, TrustedKey, files};
use serde_json::Value;

use super::layout::{Layout, LayoutError, Manifest, malformed};
use super::{PublishError, check_locks, media, title};

/// A published bundle, checked.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Digest of the OCI manifest.
    pub manifest: Digest,
    /// Published files by title.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The trusted key that signed, if any is trusted.
    pub signed_by: Option<String>,
}

/// Reads a layout and checks, in this order: the signature over the OCI manifest, sizes and digests of all files, the
/// signature over the bundle, the bundle, its locks, what provenance and bill of materials are about.
///
/// # Errors
/// [`PublishError`] at the first that is wrong: nothing of the layout is to be used.
pub fn fetch(from: &Path, keys: &[TrustedKey]) -> Result<Fetched, PublishError> {
    let layout = Layout::read(from)?;
    let manifests = layout.manifests()?;
    let of_type =
        |wanted: &'static str| manifests.iter().filter(move |manifest| manifest.content["artifactType"] == wanted);
    let artifacts: Vec<&Manifest> = of_type(media::ARTIFACT).collect();
    let [artifact] = artifacts[..] else {
        let what = format!("{} manifests of type {}, expected exactly 1", artifacts.len(), media::ARTIFACT);
        return Err(malformed("index.json", what).into());
    };
    let mut signed_by = None;
    if !keys.is_empty() {
        let subject = format!("sha256:{}", artifact.digest);
        let signature = of_type(media::ARTIFACT_SIGNATURE).find(|m| m.content["subject"]["digest"] == *subject);
        let mut signature = signature.map(|m| titled(&layout, m)).transpose()?.unwrap_or_default();
        let signature = signature.remove(title::MANIFEST_SIGNATURE).map(|b| String::from_utf8_lossy(&b).into_owned());
        let path = from.join(title::MANIFEST_SIGNATURE);
        let key = TrustedKey::check(keys, &artifact.bytes, signature.as_deref(), &path)?;
        signed_by = Some(key.to_string());
    }
    let files = titled(&layout, artifact)?;
    let file = |name: &str| files.get(name).ok_or_else(|| LayoutError::Missing(name.to_owned()));
    let bytes = file(title::BUNDLE)?;
    if !keys.is_empty() {
        let signature = files.get(title::SIGNATURE).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        TrustedKey::check(keys, bytes, signature.as_deref(), &from.join(title::SIGNATURE))?;
    }
    let bundle = Bundle::read(bytes)?;
    bundle.verify()?;
    let mut locks = Vec::new();
    for (name, bytes) in &files {
        if let Some(model) = name.strip_suffix(".lock") {
            let text = String::from_utf8_lossy(bytes);
            let lock: Lock = text.parse().map_err(|error| malformed(name, format!("{error}")))?;
            locks.push((model.to_owned(), lock));
        }
    }
    check_locks(&bundle, &locks)?;
    let digest = Digest::of(bytes);
    let about = |name: &'static str, pointer: &str| {
        let value: Value = serde_json::from_slice(file(name)?).map_err(|error| malformed(name, error.to_string()))?;
        let found = value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        if found == digest.to_string() {
            return Ok(());
        }
        Err(PublishError::About { file: name, expected: digest, found })
    };
    about(title::PROVENANCE, "/subject/0/digest/sha256")?;
    about(title::SBOM, "/metadata/component/hashes/0/content")?;
    Ok(Fetched { manifest: artifact.digest, files, signed_by })
}

/// The files of a manifest by title, each checked.
fn titled(layout: &Layout, manifest: &Manifest) -> Result<BTreeMap<String, Vec<u8>>, PublishError> {
    let name = manifest.digest.to_string();
    let layers = manifest.content["layers"].as_array().ok_or_else(|| malformed(&name, "it has no layers"))?;
    layout.get(&manifest.content["config"])?;
    let mut files = BTreeMap::new();
    for layer in layers {
        let title = layer.pointer("/annotations/org.opencontainers.image.title").and_then(Value::as_str);
        let title = title.ok_or_else(|| malformed(&name, "a layer has no title"))?;
        // A title becomes a file name: none that leads elsewhere.
        let plain = title.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c)) && !title.starts_with('.');
        if !plain {
            return Err(malformed(&name, format!("`{title}` is no file name")).into());
        }
        let (_, bytes) = layout.get(layer)?;
        if files.insert(title.to_owned(), bytes.to_vec()).is_some() {
            return Err(malformed(&name, format!("{title} is there twice")).into());
        }
    }
    Ok(files)
}

impl Fetched {
    /// Installs the files as one directory, replacing an earlier one whole.
    ///
    /// # Errors
    /// [`LayoutError::Io`]; what was there before is then still there.
    pub fn install(&self, directory: &Path) -> Result<(), LayoutError> {
        let fill =
            |aside: &Path| self.files.iter().try_for_each(|(name, bytes)| std::fs::write(aside.join(name), bytes));
        files::write_directory(directory, fill).map_err(|error: std::io::Error| LayoutError::Io {
            what: "write",
            path: directory.to_owned(),
            error,
        })
    }
}
