//! Reads and verifies the rows of a complete cache.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use precast_system::{files, input};

use super::error::CacheError;
use super::index::{RECORD_BYTES, Records, Span, checksum};
use super::key::Key;
use super::layout::{HIDDEN, INDEX, MANIFEST};
use super::manifest::Manifest;

/// The hidden states of a complete cache, by sequence.
pub(super) struct Hidden {
    file: File,
    path: PathBuf,
    spans: HashMap<Key, Span>,
    row_bytes: u64,
}

impl Hidden {
    /// Opens the rows of a cache after it has checked the whole index, and the sizes of both files.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] and those of I/O.
    pub fn open(dir: &Path, manifest: &Manifest) -> Result<Self, CacheError> {
        let Manifest { made, sequences, rows, hidden_bytes, index_sha256, head_sha256: _ } = manifest;
        if made.hidden == 0 || *sequences == 0 || rows.checked_mul(made.row_bytes()) != Some(*hidden_bytes) {
            return Err(CacheError::damaged(&dir.join(MANIFEST), "its sizes do not go together"));
        }
        let (path, file) = sized(dir, INDEX, sequences.checked_mul(RECORD_BYTES as u64))?;
        if files::digest(&path).map_err(CacheError::reading(&path))? != *index_sha256 {
            return Err(CacheError::damaged(&path, "its digest is not that of cache.json"));
        }
        let (mut records, mut spans) = (Records::new(file, made), HashMap::new());
        while let Some((key, span)) = records.next().map_err(CacheError::reading(&path))? {
            spans.insert(key, span);
        }
        // A record that is none, and a key that is there twice, are missing.
        if spans.len() as u64 != *sequences || records.end != *hidden_bytes {
            return Err(CacheError::damaged(&path, "its records do not go together"));
        }
        let (path, file) = sized(dir, HIDDEN, Some(*hidden_bytes))?;
        Ok(Self { file, path, spans, row_bytes: made.row_bytes() })
    }

    /// Returns the bytes of a sequence's rows; none if it is not there.
    pub fn bytes(&self, key: &Key) -> Option<u64> {
        self.spans.get(key).map(|span| u64::from(span.rows) * self.row_bytes)
    }

    /// Returns the keys in the order of their rows.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.spans.keys().copied().collect();
        keys.sort_unstable_by_key(|key| self.spans[key].offset);
        keys
    }

    /// Reads and verifies the rows of a sequence.
    ///
    /// # Errors
    /// [`CacheError::NoSequence`], [`CacheError::Damaged`] and those of I/O.
    pub fn read(&self, key: &Key) -> Result<Vec<u8>, CacheError> {
        let Some((span, bytes)) = self.spans.get(key).zip(self.bytes(key)) else {
            let path = self.path.parent().unwrap_or(&self.path).to_owned();
            return Err(CacheError::NoSequence { path, key: *key });
        };
        let mut rows = vec![0; bytes as usize];
        self.file.read_exact_at(&mut rows, span.offset).map_err(CacheError::reading(&self.path))?;
        if checksum(&rows) == span.checksum {
            return Ok(rows);
        }
        let what = format!("the {bytes} bytes at {} do not have their checksum", span.offset);
        Err(CacheError::damaged(&self.path, what))
    }
}

/// Opens a file that must have a size.
fn sized(dir: &Path, name: &str, expected: Option<u64>) -> Result<(PathBuf, File), CacheError> {
    let path = dir.join(name);
    let file = input::open(&path).map_err(CacheError::reading(&path))?;
    let bytes = file.metadata().map_err(CacheError::reading(&path))?.len();
    match expected {
        Some(expected) if expected == bytes => Ok((path, file)),
        _ => Err(CacheError::damaged(&path, format!("it has {bytes} bytes, which is not what cache.json says"))),
    }
}
