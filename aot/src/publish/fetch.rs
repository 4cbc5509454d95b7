//! Fetches a published bundle: checks everything in memory, then installs it whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use precast_core::Registry;
use precast_fatbins::{Bundle, Digest, Lock, TrustedKey};
use precast_system::files;
use serde_json::Value;

use super::archive::Archive;
use super::content::check_locks;
use super::error::{LayoutError, PublishError, malformed};
use super::layout::{Descriptor, FILES_BYTES, MANIFEST_BYTES, index};
use super::names::{media, title};

/// Size of the empty blob `{}`.
const CONFIG_BYTES: u64 = 2;
/// Size limit of a signature: three lines of base64 and two comments.
const SIGNATURE_BYTES: u64 = 16 << 10;

/// A published bundle, verified.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Artifact's OCI manifest.
    pub manifest: Vec<u8>,
    /// Published files by title.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Trusted key that signed; none if no key is trusted.
    pub signed_by: Option<String>,
}

/// Reads a layout of a program's kernels and checks, in this order: the signature over the OCI manifest, sizes and
/// digests of its files, the signature over the bundle, the bundle, its locks, the subjects of provenance and bill of
/// materials. With a trusted key, no file is parsed before its signature is checked.
///
/// # Errors
/// [`PublishError`] at the first fault: then no part of the layout may be used.
pub fn fetch(from: &Path, keys: &[TrustedKey], kernels: &'static Registry) -> Result<Fetched, PublishError> {
    let archive = Archive::open(from)?;
    let index = index(&archive)?;
    // Tags and types are not signed: they only locate the manifests.
    let is_signature = |tag: &Option<String>| tag.as_ref().is_some_and(|tag| tag.ends_with(".sig"));
    let is_other = |kind: &Option<String>| kind.as_ref().is_some_and(|kind| kind != media::ARTIFACT);
    let artifacts: Vec<&Descriptor> =
        index.iter().filter(|found| !is_signature(&found.tag) && !is_other(&found.artifact_type)).collect();
    let [artifact] = artifacts[..] else {
        let what = format!("{} manifests of type {}, expected exactly 1", artifacts.len(), media::ARTIFACT);
        return Err(malformed("index.json", what).into());
    };
    let manifest = artifact.read(&archive, MANIFEST_BYTES)?;
    let mut signed_by = None;
    if !keys.is_empty() {
        let tag = format!("sha256-{}.sig", artifact.digest);
        let signature = index.iter().find(|found| found.tag.as_ref() == Some(&tag));
        let signature = signature.map(|found| signature_text(&archive, found)).transpose()?;
        let path = from.join(title::MANIFEST_SIGNATURE);
        signed_by = Some(TrustedKey::check(keys, &manifest, signature.as_deref(), &path)?.to_string());
    }
    let name = artifact.digest.to_string();
    let content = parsed(&name, &manifest)?;
    if content["artifactType"] != media::ARTIFACT {
        return Err(malformed(&name, format!("it is no manifest of type {}", media::ARTIFACT)).into());
    }
    Descriptor::of(&content["config"])?.read(&archive, CONFIG_BYTES)?;
    let files = layers(&name, &content)?;
    let mut left = FILES_BYTES;
    let read = files.into_iter().map(|(title, layer)| -> Result<(String, Vec<u8>), LayoutError> {
        let bytes = layer.read(&archive, left)?;
        left -= bytes.len() as u64;
        Ok((title, bytes))
    });
    let files = read.collect::<Result<BTreeMap<String, Vec<u8>>, LayoutError>>()?;
    let file = |name: &str| files.get(name).ok_or_else(|| LayoutError::Missing(name.to_owned()));
    let bytes = file(title::BUNDLE)?;
    if !keys.is_empty() {
        let signature = files.get(title::SIGNATURE).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        TrustedKey::check(keys, bytes, signature.as_deref(), &from.join(title::SIGNATURE))?;
    }
    let bundle = Bundle::read(bytes, kernels)?;
    bundle.verify()?;
    let mut locks = Vec::new();
    for (name, bytes) in &files {
        if let Some(stem) = name.strip_suffix(".lock") {
            let text = String::from_utf8_lossy(bytes);
            let lock: Lock = text.parse().map_err(|error| malformed(name, format!("{error}")))?;
            locks.push((stem.to_owned(), lock));
        }
    }
    check_locks(&bundle, &locks)?;
    let digest = Digest::of(bytes);
    let about = |name: &'static str, pointer: &str| {
        let value = parsed(name, file(name)?)?;
        let found = value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        if found == digest.to_string() {
            return Ok(());
        }
        Err(PublishError::About { file: name, expected: digest, found })
    };
    about(title::PROVENANCE, "/subject/0/digest/sha256")?;
    about(title::SBOM, "/metadata/component/hashes/0/content")?;
    Ok(Fetched { manifest, files, signed_by })
}

fn parsed(name: &str, bytes: &[u8]) -> Result<Value, LayoutError> {
    serde_json::from_slice(bytes).map_err(|error| malformed(name, error.to_string()))
}

/// Returns the signature that a signature manifest carries. The signature itself, not its carrier, identifies the
/// signer.
fn signature_text(archive: &Archive, found: &Descriptor) -> Result<String, LayoutError> {
    let name = found.digest.to_string();
    let manifest = parsed(&name, &found.read(archive, MANIFEST_BYTES)?)?;
    let layers = Descriptor::list(&name, &manifest["layers"])?;
    let layer = layers.iter().find(|layer| layer.title.as_deref() == Some(title::MANIFEST_SIGNATURE));
    let layer = layer.ok_or_else(|| malformed(&name, format!("it has no {}", title::MANIFEST_SIGNATURE)))?;
    Ok(String::from_utf8_lossy(&layer.read(archive, SIGNATURE_BYTES)?).into_owned())
}

/// Returns the files that a manifest names, by title: each published file once, and nothing else.
fn layers(name: &str, manifest: &Value) -> Result<BTreeMap<String, Descriptor>, LayoutError> {
    let mut files = BTreeMap::new();
    for layer in Descriptor::list(name, &manifest["layers"])? {
        let title = layer.title.clone().ok_or_else(|| malformed(name, "a layer has no title"))?;
        // A title becomes a file name, which must not lead elsewhere.
        let plain = title.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c)) && !title.starts_with('.');
        let published = [title::BUNDLE, title::SIGNATURE, title::SBOM, title::PROVENANCE].contains(&&*title);
        if !plain || !(published || title.ends_with(".lock")) {
            return Err(malformed(name, format!("`{title}` is no file that precast-aot publishes")));
        }
        if files.insert(title.clone(), layer).is_some() {
            return Err(malformed(name, format!("{title} is there twice")));
        }
    }
    Ok(files)
}

impl Fetched {
    /// Installs the files and their manifest as one directory, replacing an earlier one whole.
    ///
    /// # Errors
    /// [`LayoutError::NotOurs`] if something else is there, and [`LayoutError::Io`]; both leave the path as it was.
    pub fn install(&self, directory: &Path) -> Result<(), LayoutError> {
        check_replaceable(directory)?;
        let fill = |aside: &Path| {
            fs::write(aside.join(title::MANIFEST), &self.manifest)?;
            self.files.iter().try_for_each(|(name, bytes)| fs::write(aside.join(name), bytes))
        };
        files::write_directory(directory, fill).map_err(|error: io::Error| LayoutError::Io {
            what: "write",
            path: directory.to_owned(),
            error,
        })
    }
}

/// Refuses to replace a directory that [`Fetched::install`] did not make, or that changed since.
///
/// # Errors
/// [`LayoutError::NotOurs`] with the foreign entry.
pub fn check_replaceable(directory: &Path) -> Result<(), LayoutError> {
    let foreign = |what: String| LayoutError::NotOurs { path: directory.to_owned(), what };
    let failed = |error| LayoutError::Io { what: "read", path: directory.to_owned(), error };
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        kind if !kind.as_ref().is_ok_and(fs::Metadata::is_dir) => {
            kind.map_err(failed)?;
            return Err(foreign("it is no directory".to_owned()));
        }
        _ => {}
    }
    let entries = fs::read_dir(directory).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    if entries.is_empty() {
        return Ok(());
    }
    let archive = Archive::open(directory)?;
    let listed = archive.read(title::MANIFEST, MANIFEST_BYTES);
    let listed = listed.and_then(|bytes| layers(title::MANIFEST, &parsed(title::MANIFEST, &bytes)?));
    let listed = listed.map_err(|error| foreign(format!("precast-aot fetch did not write it ({error})")))?;
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type().map_err(failed)?.is_file() {
            return Err(foreign(format!("{name} is no regular file")));
        }
        if name == title::MANIFEST {
            continue;
        }
        let layer = listed.get(&name).ok_or_else(|| foreign(format!("{name} is not among what was fetched")))?;
        let same = archive.read(&name, layer.bytes).is_ok_and(|bytes| Digest::of(&bytes) == layer.digest);
        if !same {
            return Err(foreign(format!("{name} was changed since it was fetched")));
        }
    }
    Ok(())
}
