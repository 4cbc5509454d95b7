//! The OCI image layout: `oci-layout`, `index.json` and blobs named by digest; a directory or a tar file.
//! Source: OCI Image Format Specification 1.1, "Image Layout" and "Guidelines for Artifact Usage".

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use precast_fatbins::{Digest, files};
use serde_json::{Value, json};

use super::media;

/// The two files that are no blobs.
const MARKER: &str = "oci-layout";
const INDEX: &str = "index.json";
const BLOBS: &str = "blobs/sha256/";

/// A layout in memory: files by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    index: Vec<Value>,
}

/// A layout that must not be used, or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The disk.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// read, write.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file every layout has.
    #[error("no OCI image layout: it has no {0}")]
    Missing(String),
    /// A file that is not what the specification says.
    #[error("{file}: {what}")]
    Malformed {
        /// Which.
        file: String,
        /// Why.
        what: String,
    },
    /// A blob was altered.
    #[error("blob {expected} has SHA-256 {found}")]
    Digest {
        /// Its name.
        expected: Digest,
        /// Its bytes'.
        found: Digest,
    },
    /// A blob is not as long as its descriptor says.
    #[error("blob {digest} is {found} bytes, its descriptor says {expected}")]
    Size {
        /// Which.
        digest: Digest,
        /// By the descriptor.
        expected: u64,
        /// In the layout.
        found: u64,
    },
}

/// A manifest of a layout, its bytes checked by digest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Digest of its bytes.
    pub digest: Digest,
    /// The bytes: what a signature is over.
    pub bytes: Vec<u8>,
    /// The content.
    pub content: Value,
}

impl Layout {
    /// An empty layout.
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

    /// A manifest over files.
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
        let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": self.index });
        self.files.insert(INDEX.to_owned(), index.to_string().into_bytes());
        descriptor
    }

    /// Writes a tar file where the name ends in `.tar`, else a directory: whole, or nothing. The bytes are a
    /// function of the content.
    ///
    /// # Errors
    /// [`LayoutError::Io`]; what was there before is then still there.
    pub fn write(&self, path: &Path) -> Result<(), LayoutError> {
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

    /// Reads a directory or a tar file.
    ///
    /// # Errors
    /// [`LayoutError`] where it is no layout.
    pub fn read(path: &Path) -> Result<Self, LayoutError> {
        let io = |error| LayoutError::Io { what: "read", path: path.to_owned(), error };
        let files = if path.is_dir() { read_directory(path) } else { read_tar(path) }.map_err(io)?;
        let mut layout = Self { files, index: Vec::new() };
        let marker = layout.json(MARKER)?;
        if marker["imageLayoutVersion"] != "1.0.0" {
            return Err(malformed(MARKER, "imageLayoutVersion is not 1.0.0"));
        }
        let index = layout.json(INDEX)?;
        let manifests = index["manifests"].as_array();
        layout.index = manifests.ok_or_else(|| malformed(INDEX, "it has no list of manifests"))?.clone();
        Ok(layout)
    }

    fn json(&self, name: &str) -> Result<Value, LayoutError> {
        let bytes = self.files.get(name).ok_or_else(|| LayoutError::Missing(name.to_owned()))?;
        serde_json::from_slice(bytes).map_err(|error| malformed(name, error.to_string()))
    }

    /// The manifests of the index.
    ///
    /// # Errors
    /// [`LayoutError`] where one is missing or altered.
    pub fn manifests(&self) -> Result<Vec<Manifest>, LayoutError> {
        let read = |descriptor: &Value| {
            let (digest, bytes) = self.get(descriptor)?;
            let content =
                serde_json::from_slice(bytes).map_err(|error| malformed(&digest.to_string(), error.to_string()))?;
            Ok(Manifest { digest, bytes: bytes.to_vec(), content })
        };
        self.index.iter().map(read).collect()
    }

    /// The blob of a descriptor, its size and digest checked.
    ///
    /// # Errors
    /// [`LayoutError`] where it is missing or altered.
    pub fn get(&self, descriptor: &Value) -> Result<(Digest, &[u8]), LayoutError> {
        let text = descriptor["digest"].as_str().and_then(|text| text.strip_prefix("sha256:"));
        let expected: Option<Digest> = text.and_then(|text| text.parse().ok());
        let expected = expected.ok_or_else(|| malformed("descriptor", "its digest is not a sha256"))?;
        let name = format!("{BLOBS}{expected}");
        let bytes = self.files.get(&name).ok_or(LayoutError::Missing(name))?;
        let size = descriptor["size"].as_u64().unwrap_or_default();
        if size != bytes.len() as u64 {
            return Err(LayoutError::Size { digest: expected, expected: size, found: bytes.len() as u64 });
        }
        let found = Digest::of(bytes);
        if found != expected {
            return Err(LayoutError::Digest { expected, found });
        }
        Ok((expected, bytes))
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::new()
    }
}

pub(super) fn malformed(file: &str, what: impl Into<String>) -> LayoutError {
    LayoutError::Malformed { file: file.to_owned(), what: what.into() }
}

fn is_tar(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tar")
}

/// The files a layout has, whatever else lies there.
fn read_directory(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for name in [MARKER, INDEX] {
        if path.join(name).exists() {
            found.insert(name.to_owned(), fs::read(path.join(name))?);
        }
    }
    let blobs = path.join(BLOBS);
    if blobs.is_dir() {
        for entry in fs::read_dir(blobs)? {
            let entry = entry?;
            found.insert(format!("{BLOBS}{}", entry.file_name().to_string_lossy()), fs::read(entry.path())?);
        }
    }
    Ok(found)
}

/// Nothing is unpacked to disk: a name is a name in a map, wherever it points. Reading takes what the file holds,
/// not what a header promises.
fn read_tar(path: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(fs::File::open(path)?).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            found.insert(name, bytes);
        }
    }
    Ok(found)
}
