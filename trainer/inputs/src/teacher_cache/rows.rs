//! Reads and verifies the rows of a complete cache.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use precast_system::{files, input};

use super::compact::Compact;
use super::error::CacheError;
use super::index::{RECORD_BYTES, Records, Span, checksum};
use super::key::Key;
use super::layout::{HIDDEN, INDEX, MANIFEST};
use super::manifest::CacheManifest;

/// The rows of a complete cache, by sequence.
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
    pub fn open(dir: &Path, manifest: &CacheManifest) -> Result<Self, CacheError> {
        let CacheManifest { made, sequences, rows, hidden_bytes, index_sha256, head_sha256: _ } = manifest;
        let is_possible = made.compact.is_none_or(Compact::is_possible);
        if !is_possible
            || made.hidden == 0
            || *sequences == 0
            || rows.checked_mul(made.row_bytes()) != Some(*hidden_bytes)
        {
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
        let place = format!("the {bytes} bytes at {}", span.offset);
        let mut rows = vec![0; bytes as usize];
        let read = self.file.read_exact_at(&mut rows, span.offset).map_err(CacheError::reading(&self.path));
        read.map_err(|error| match error {
            CacheError::Io(error) => CacheError::Rows { place: format!("{place}, of sequence {key:?}"), error },
            CacheError::Damaged { path, what } => CacheError::Damaged { path, what: format!("{place}: {what}") },
            other => other,
        })?;
        match checksum(&rows) == span.checksum {
            true => Ok(rows),
            false => Err(CacheError::damaged(&self.path, format!("{place} do not have their checksum"))),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_cannot_be_read_are_named_with_their_sequence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hidden.bin");
        std::fs::write(&path, [7; 12]).unwrap();
        let key = Key::of(&[1, 2], &[2, 3]);
        let of = |file: File, offset| {
            let spans = HashMap::from([(key, Span { offset, rows: 2, checksum: checksum(&[7; 8]) })]);
            Hidden { file, path: path.clone(), spans, row_bytes: 4 }.read(&key)
        };
        assert_eq!(of(File::open(&path).unwrap(), 4).unwrap(), [7; 8]);
        // One that is open for writing alone stands for a disk that fails.
        let failed = of(File::options().write(true).open(&path).unwrap(), 4).unwrap_err();
        assert!(matches!(failed, CacheError::Rows { .. }), "{failed}");
        let said = failed.to_string();
        assert!(said.starts_with(&format!("cannot read {}: ", path.display())), "{said}");
        assert!(said.ends_with(&format!(": the 8 bytes at 4, of sequence {key:?}")), "{said}");
        let damaged = of(File::open(&path).unwrap(), 8).unwrap_err().to_string();
        assert!(damaged.contains("hidden.bin: the 8 bytes at 8: "), "{damaged}");
    }
}
