//! A complete cache.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use precast_fatbins::{Digest, TrustedKey, signature_path};
use precast_plan::ModelConfig;
use precast_system::{count, files};

use super::ahead::Ahead;
use super::error::CacheError;
use super::index::RECORD_BYTES;
use super::key::Key;
use super::layout::{FILLING, INDEX, MANIFEST, head, model};
use super::manifest::{self, CacheManifest, CacheRecord, Made};
use super::rows::Hidden;

/// A complete teacher cache, open for reading.
pub struct TeacherCache {
    dir: PathBuf,
    manifest: CacheManifest,
    hidden: Arc<Hidden>,
    /// Its threads start with the first hint.
    pub(super) ahead: OnceLock<Ahead>,
}

impl TeacherCache {
    /// Opens a cache after it has verified the manifest, the whole index and the sizes of files. Rows are verified when
    /// they are read.
    ///
    /// # Errors
    /// [`CacheError::Missing`], [`CacheError::Incomplete`], [`CacheError::Format`], [`CacheError::Damaged`] and those
    /// of I/O.
    pub fn open(dir: &Path) -> Result<Self, CacheError> {
        Self::open_trusted(dir, &[])
    }

    /// Opens a cache as [`Self::open`] does, if one of these keys has signed its manifest; any, if there are none.
    ///
    /// # Errors
    /// [`CacheError::Signature`], and as [`Self::open`].
    pub fn open_trusted(dir: &Path, trusted: &[TrustedKey]) -> Result<Self, CacheError> {
        let Some(manifest) = manifest::read_trusted::<CacheManifest>(&dir.join(MANIFEST), trusted)? else {
            return Err(match manifest::read::<Made>(&dir.join(FILLING))? {
                Some(_) => {
                    let bytes = dir.join(INDEX).metadata().map_or(0, |index| index.len());
                    CacheError::Incomplete { path: dir.to_owned(), sequences: bytes / RECORD_BYTES as u64 }
                }
                None => CacheError::Missing(dir.to_owned()),
            });
        };
        let hidden = Arc::new(Hidden::open(dir, &manifest)?);
        Ok(Self { dir: dir.to_owned(), manifest, hidden, ahead: OnceLock::new() })
    }

    /// Returns the members of `cache.json`.
    pub fn manifest(&self) -> &CacheManifest {
        &self.manifest
    }

    /// Returns the digest of `cache.json`: through the digest of the index it covers every row.
    pub fn sha256(&self) -> Digest {
        self.manifest.sha256()
    }

    /// True if a signature lies beside its manifest, whoever made it.
    pub fn has_signature(&self) -> bool {
        signature_path(&self.dir.join(MANIFEST)).exists()
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory of the teacher's configuration, tokenizer and head.
    pub fn teacher(&self) -> PathBuf {
        model(&self.dir)
    }

    /// Describes it for people: `cache C of Q4_K, Q6_K, 339 tensors, 1000 sequences`.
    pub fn described(&self) -> String {
        let CacheManifest { made, sequences, .. } = &self.manifest;
        let compact = made.compact.map_or(String::new(), |compact| format!(", {compact}"));
        let sequences = count(*sequences as usize, "sequence");
        format!("cache {} of {}, {sequences}{compact}", self.dir.display(), made.teacher_stored)
    }

    /// Describes it for records: the members of its manifest, and its digest.
    pub fn record(&self) -> CacheRecord {
        CacheRecord { manifest: self.manifest.clone(), sha256: self.sha256() }
    }

    /// Verifies the file of the teacher's head.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] and those of I/O.
    pub fn check_head(&self) -> Result<(), CacheError> {
        let path = head(&self.dir);
        match files::digest(&path).map_err(CacheError::reading(&path))? == self.manifest.head_sha256 {
            true => Ok(()),
            false => Err(CacheError::damaged(&path, "it has another SHA-256 than cache.json says")),
        }
    }

    /// Checks that a student chooses among the tokens that a compact cache knows.
    ///
    /// # Errors
    /// [`CacheError::OtherVocabulary`].
    pub fn check_student(&self, vocab: u32) -> Result<(), CacheError> {
        match self.manifest.made.compact {
            Some(compact) if compact.student_vocab != vocab => Err(CacheError::OtherVocabulary {
                path: self.dir.clone(),
                from: self.manifest.made.source(),
                was: compact,
                is: vocab,
            }),
            _ => Ok(()),
        }
    }

    /// Checks that a model, which is that of the teacher's head, has the sizes that rows are read by.
    ///
    /// # Errors
    /// [`CacheError::Damaged`].
    pub fn check_model(&self, model: &ModelConfig) -> Result<(), CacheError> {
        let Made { hidden, vocab, .. } = self.manifest.made;
        match (model.hidden, model.vocab) == (hidden, vocab) {
            true => Ok(()),
            false => {
                Err(CacheError::damaged(&self.dir.join(MANIFEST), "its sizes are not those of teacher/config.json"))
            }
        }
    }

    /// True if it has the rows of a sequence.
    pub fn has(&self, key: &Key) -> bool {
        self.hidden.bytes(key).is_some()
    }

    /// Returns the keys of all sequences, in the order of the index.
    pub fn keys(&self) -> Vec<Key> {
        self.hidden.keys()
    }

    /// Returns the rows of a sequence, verified: a row for each position that counts, in order.
    ///
    /// # Errors
    /// [`CacheError::NoSequence`], [`CacheError::Damaged`] and those of I/O.
    pub fn read(&self, key: &Key) -> Result<Vec<u8>, CacheError> {
        let ahead = self.ahead.get().and_then(|ahead| ahead.take(key));
        ahead.unwrap_or_else(|| self.hidden.read(key))
    }

    /// Has the rows of sequences that are about to be read, in this order, read into memory meanwhile: as many as there
    /// is room for, which each [`Self::read`] makes. What [`Self::read`] returns does not depend on it.
    pub fn read_ahead(&self, keys: &[Key]) {
        self.ahead.get_or_init(|| Ahead::start(Arc::clone(&self.hidden))).want(keys);
    }
}
