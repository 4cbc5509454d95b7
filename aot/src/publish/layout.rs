//! The OCI image layout: `oci-layout`, `index.json` and blobs named by digest; a directory or a tar file.
//! Source: OCI Image Format Specification 1.1, "Image Layout" and "Guidelines for Artifact Usage".
//!
//! JSON by hand: the six fields that are used do not earn `oci-spec` and its proc macros in every build script.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use precast_fatbins::Digest;
use precast_system::{files, input};
use serde_json::{Value, json};

use super::archive::Archive;
use super::error::{LayoutError, malformed};
use super::names::media;

/// The two files that are not blobs.
const MARKER: &str = "oci-layout";
const INDEX: &str = "index.json";
const BLOBS: &str = "blobs/sha256/";

/// Size limit of `oci-layout` and `index.json`, which no descriptor covers.
const MARKER_BYTES: u64 = 4 << 10;
const INDEX_BYTES: u64 = 1 << 20;
/// Size limit of a manifest, as in registries.
pub const MANIFEST_BYTES: u64 = 4 << 20;
/// Limit on the total size of a manifest's files: far above the kernels of large programs.
pub const FILES_BYTES: u64 = 1 << 30;

/// A layout in memory: files by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    index: Vec<Value>,
}

/// Descriptor of a blob in a layout or a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub digest: Digest,
    /// Size of the blob.
    pub bytes: u64,
    /// File name, if the blob is a file.
    pub title: Option<String>,
    /// Tag, if it is a manifest of the index.
    pub tag: Option<String>,
    /// Artifact type, if it is a manifest of the index.
    pub artifact_type: Option<String>,
}

impl Descriptor {
    /// Reads a descriptor.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] without a digest and a size.
    pub fn of(value: &Value) -> Result<Self, LayoutError> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let digest = text("/digest").and_then(|text| text.strip_prefix("sha256:")?.parse().ok());
        let bytes = value["size"].as_u64();
        let (Some(digest), Some(bytes)) = (digest, bytes) else {
            return Err(malformed("descriptor", "it has no sha256 and no size"));
        };
        Ok(Self {
            digest,
            bytes,
            title: text("/annotations/org.opencontainers.image.title"),
            tag: text("/annotations/org.opencontainers.image.ref.name"),
            artifact_type: text("/artifactType"),
        })
    }

    /// Reads a list of descriptors.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] if `value` is no such list.
    pub fn list(file: &str, value: &Value) -> Result<Vec<Self>, LayoutError> {
        let list = value.as_array().ok_or_else(|| malformed(file, "it lacks a list of descriptors"))?;
        list.iter().map(Self::of).collect()
    }

    /// Reads the blob, and checks its size and digest.
    ///
    /// # Errors
    /// [`LayoutError`] if it is missing, longer than `limit` or altered.
    pub fn read(&self, archive: &Archive, limit: u64) -> Result<Vec<u8>, LayoutError> {
        let name = format!("{BLOBS}{}", self.digest);
        let (digest, expected, found) = (self.digest, self.bytes, archive.size(&name)?);
        if expected != found {
            return Err(LayoutError::Size { digest, expected, found });
        }
        let bytes = archive.read(&name, limit)?;
        match Digest::of(&bytes) {
            found if found == digest => Ok(bytes),
            found => Err(LayoutError::Digest { expected: digest, found }),
        }
    }
}

/// Returns the manifests that the index of a layout names. The index is not trusted: it only locates them.
///
/// # Errors
/// [`LayoutError`] if the archive is no layout.
pub fn index(archive: &Archive) -> Result<Vec<Descriptor>, LayoutError> {
    let read = |name: &str, limit: u64| -> Result<Value, LayoutError> {
        serde_json::from_slice(&archive.read(name, limit)?).map_err(|error| malformed(name, error.to_string()))
    };
    if read(MARKER, MARKER_BYTES)?["imageLayoutVersion"] != "1.0.0" {
        return Err(malformed(MARKER, "imageLayoutVersion is not 1.0.0"));
    }
    Descriptor::list(INDEX, &read(INDEX, INDEX_BYTES)?["manifests"])
}

impl Layout {
    /// Starts a layout without blobs.
    pub fn new() -> Self {
        let marker = json!({ "imageLayoutVersion": "1.0.0" }).to_string();
        Self { files: BTreeMap::from([(MARKER.to_owned(), marker.into_bytes())]), index: Vec::new() }
    }

    fn blob(&mut self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.files.insert(format!("{BLOBS}{digest}"), bytes.to_vec());
        digest
    }

    /// Adds a file and returns its descriptor.
    pub fn add(&mut self, media_type: &str, title: &str, bytes: &[u8]) -> Value {
        let digest = self.blob(bytes);
        json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
            "annotations": { "org.opencontainers.image.title": title },
        })
    }

    /// Adds a manifest over files.
    pub fn manifest(
        &mut self,
        artifact_type: &str,
        layers: &[Value],
        subject: Option<&Value>,
        annotations: Value,
    ) -> Value {
        let empty = b"{}";
        let digest = self.blob(empty);
        let config = json!({ "mediaType": media::EMPTY, "digest": format!("sha256:{digest}"), "size": empty.len() });
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": media::MANIFEST,
            "artifactType": artifact_type,
            "config": config,
            "layers": layers,
            "annotations": annotations,
        });
        if let Some(subject) = subject {
            manifest["subject"] = subject.clone();
        }
        manifest
    }

    /// Adds a manifest to the index under a tag, and returns its descriptor without the tag.
    pub fn index(&mut self, artifact_type: &str, manifest: &[u8], tag: &str) -> Value {
        let digest = self.blob(manifest);
        let descriptor = json!({
            "mediaType": media::MANIFEST,
            "artifactType": artifact_type,
            "digest": format!("sha256:{digest}"),
            "size": manifest.len(),
        });
        let mut tagged = descriptor.clone();
        tagged["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        self.index.push(tagged);
        let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": self.index });
        self.files.insert(INDEX.to_owned(), index.to_string().into_bytes());
        descriptor
    }

    /// Writes a tar file if the name ends in `.tar`, else a directory: whole, or nothing. The bytes depend on the
    /// content alone.
    ///
    /// # Errors
    /// [`LayoutError::NotOurs`] if something else is there, and [`LayoutError::Io`]; both leave the path as it was.
    pub fn write(&self, path: &Path) -> Result<(), LayoutError> {
        Self::check_replaceable(path)?;
        let io = |error| LayoutError::Io { what: "write", path: path.to_owned(), error };
        if is_tar(path) {
            return self.tar().and_then(|tar| files::write_whole(path, &tar)).map_err(io);
        }
        let fill =
            |aside: &Path| self.files.iter().try_for_each(|(name, bytes)| files::write_whole(&aside.join(name), bytes));
        files::write_directory(path, fill).map_err(io)
    }

    fn tar(&self) -> io::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in &self.files {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, &bytes[..])?;
        }
        tar.into_inner()
    }

    /// Rebuilds the layout of these manifests as this program writes it: equal content gives equal bytes.
    ///
    /// # Errors
    /// [`LayoutError`] if the archive is no layout of this program.
    fn rewritten(archive: &Archive) -> Result<Self, LayoutError> {
        let mut layout = Self::new();
        let mut left = FILES_BYTES;
        for descriptor in index(archive)? {
            let bytes = descriptor.read(archive, MANIFEST_BYTES)?;
            let name = descriptor.digest.to_string();
            let content: Value = serde_json::from_slice(&bytes).map_err(|error| malformed(&name, error.to_string()))?;
            let of_ours =
                [media::ARTIFACT, media::ARTIFACT_SIGNATURE].into_iter().find(|t| content["artifactType"] == *t);
            let of_ours = of_ours.ok_or_else(|| malformed(&name, "it is no manifest of precast-aot"))?;
            let mut blobs = Descriptor::list(&name, &content["layers"])?;
            blobs.push(Descriptor::of(&content["config"])?);
            for blob in blobs {
                let bytes = blob.read(archive, left)?;
                left -= bytes.len() as u64;
                layout.blob(&bytes);
            }
            layout.index(of_ours, &bytes, &descriptor.tag.unwrap_or_default());
        }
        Ok(layout)
    }

    /// Refuses to replace a path that [`Self::write`] did not write, or that changed since.
    ///
    /// # Errors
    /// [`LayoutError::NotOurs`] with the foreign entry.
    pub fn check_replaceable(path: &Path) -> Result<(), LayoutError> {
        let foreign = |what: String| LayoutError::NotOurs { path: path.to_owned(), what };
        let io = |error| LayoutError::Io { what: "read", path: path.to_owned(), error };
        let kind = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            kind => kind.map_err(io)?,
        };
        let (is_right, expected) = if is_tar(path) { (kind.is_file(), "file") } else { (kind.is_dir(), "directory") };
        if !is_right {
            return Err(foreign(format!("it is no {expected}")));
        }
        if kind.is_dir() && fs::read_dir(path).map_err(io)?.next().is_none() {
            return Ok(());
        }
        let archive = Archive::open(path).map_err(|error| foreign(error.to_string()))?;
        let ours = Self::rewritten(&archive).map_err(|error| foreign(error.to_string()))?;
        for name in archive.names()? {
            let same = ours.files.get(&name).is_some_and(|bytes| {
                let link = kind.is_dir() && fs::symlink_metadata(path.join(&name)).is_ok_and(|file| file.is_symlink());
                !link && archive.read(&name, bytes.len() as u64).is_ok_and(|found| found == *bytes)
            });
            if !same {
                return Err(foreign(format!("{name} is not as precast-aot publish writes it")));
            }
        }
        if kind.is_file()
            && (kind.len() > 2 * FILES_BYTES
                || input::read(path, 2 * FILES_BYTES).map_err(io)? != ours.tar().map_err(io)?)
        {
            return Err(foreign("it holds more than precast-aot publish writes".to_owned()));
        }
        Ok(())
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::new()
    }
}

fn is_tar(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tar")
}
