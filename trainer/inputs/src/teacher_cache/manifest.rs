//! The members of a cache's manifest, and of a filling's.

use std::io::ErrorKind;
use std::path::Path;

use precast_fatbins::{Digest, TrustedKey, signature_path};
use precast_kernels::Dtype;
use precast_plan::Precision;
use precast_system::input;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};

use super::compact::Compact;
use super::error::CacheError;
use super::layout::FORMAT;
use crate::base::difference::Difference;

/// Everything that a cache's bytes follow from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// [`FORMAT`].
    pub format: u32,
    /// Digest of the teacher's weights.
    pub teacher_sha256: Digest,
    /// Digest of its config.json.
    pub teacher_config_sha256: Digest,
    /// Formats of its weights as they are stored, for people: `Q4_K, Q6_K, 339 tensors`.
    pub teacher_stored: String,
    /// Decides the elements of hidden states: f32 in fp32, else bf16.
    #[serde(deserialize_with = "precision")]
    pub precision: Precision,
    /// Elements of a row.
    pub hidden: u32,
    /// Tokens that the teacher chooses among.
    pub vocab: u32,
    /// The form; none of an exact cache, of hidden states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact: Option<Compact>,
    /// Tokens of a sequence.
    pub seq_len: u32,
    /// The kernels that compute the teacher; none where others have computed it.
    #[serde(flatten)]
    pub filled_by: Option<FilledBy>,
    /// Digest of the training data and of how they become sequences: a run of the same need not look for each of them.
    pub data_sha256: Digest,
    /// Digest of the sequences of held-out data.
    pub held_out_sha256: Option<Digest>,
}

/// Kernels that a cache's bits follow from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilledBy {
    /// Digest of their sources.
    pub kernels_sha256: Digest,
    /// The architecture that they are built for.
    pub arch: String,
}

fn precision<'de, D: Deserializer<'de>>(from: D) -> Result<Precision, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

impl Made {
    /// Returns the bytes of a row: what is kept of one position.
    pub fn row_bytes(&self) -> u64 {
        self.parts().into_iter().sum()
    }

    /// Returns the bytes of the parts of a row: the hidden state; or the ids of tokens, and their log-probabilities
    /// with that of all others.
    pub fn parts(&self) -> Vec<u64> {
        let Some(Compact { keep_logits, .. }) = self.compact else {
            return vec![u64::from(self.hidden) * self.precision.dtype().bytes()];
        };
        let keep = u64::from(keep_logits);
        vec![keep * Dtype::U32.bytes(), (keep + 1) * Dtype::F32.bytes()]
    }

    /// Lays parts of rows, each a row after the other, side by side.
    pub fn side_by_side(&self, parts: &[Vec<u8>]) -> Vec<u8> {
        let bytes = parts.iter().map(Vec::len).sum();
        let widths = self.parts().into_iter().map(|width| width as usize);
        let mut parts: Vec<_> = parts.iter().zip(widths).map(|(part, width)| part.chunks_exact(width)).collect();
        let mut rows = Vec::with_capacity(bytes);
        while rows.len() < bytes {
            parts.iter_mut().flat_map(Iterator::next).for_each(|part| rows.extend_from_slice(part));
        }
        rows
    }

    /// True if so many bytes are the rows of a sequence: one at least, and at most one for each position.
    pub fn is_of_rows(&self, bytes: u64) -> bool {
        let (rows, rest) = (bytes / self.row_bytes(), bytes % self.row_bytes());
        rest == 0 && (1..=u64::from(self.seq_len)).contains(&rows)
    }

    /// Returns the options of `precast cache` that name what such a cache is made of, but for the paths of data.
    pub fn source(&self) -> &'static str {
        if self.filled_by.is_some() { "--teacher TEACHER --data" } else { "--from" }
    }

    /// Returns the differences that decide bits, by name.
    pub fn differences(&self, was: &Self) -> Vec<Difference> {
        let both = was.values().into_iter().zip(self.values());
        let all = both.map(|((name, was), (_, is))| Difference { name: name.to_owned(), was, is });
        all.filter(|difference| difference.was != difference.is).collect()
    }

    /// Returns all of it, by names for people.
    pub fn values(&self) -> [(&'static str, String); 13] {
        // Destructured, so that no field is forgotten.
        let Self {
            format,
            teacher_sha256,
            teacher_config_sha256,
            teacher_stored,
            precision,
            hidden,
            vocab,
            compact,
            seq_len,
            filled_by,
            data_sha256,
            held_out_sha256,
        } = self;
        let of_kernels = |value: fn(&FilledBy) -> String| filled_by.as_ref().map_or("none".to_owned(), value);
        [
            ("the format of the cache", format.to_string()),
            ("the digest of the teacher's weights", teacher_sha256.to_string()),
            ("the digest of the teacher's config.json", teacher_config_sha256.to_string()),
            ("the teacher as it is stored", teacher_stored.clone()),
            ("precision", precision.to_string()),
            ("the teacher's hidden size", hidden.to_string()),
            ("the teacher's vocabulary", vocab.to_string()),
            ("the form", compact.map_or("exact".to_owned(), |compact| compact.to_string())),
            ("seq-len", seq_len.to_string()),
            ("the digest of the kernels' sources", of_kernels(|by| by.kernels_sha256.to_string())),
            ("the architecture", of_kernels(|by| by.arch.clone())),
            ("the training data", data_sha256.to_string()),
            ("the held-out data", held_out_sha256.map_or("none".to_owned(), |digest| digest.to_string())),
        ]
    }
}

/// The manifest of a complete cache. Its own digest covers all rows that a run reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheManifest {
    #[serde(flatten)]
    pub made: Made,
    /// Digest of the file of the teacher's head.
    pub head_sha256: Digest,
    /// Sequences, each once.
    pub sequences: u64,
    /// Rows of all of them.
    pub rows: u64,
    /// Bytes of `hidden.bin`.
    pub hidden_bytes: u64,
    /// Digest of `index.bin`.
    pub index_sha256: Digest,
}

/// A cache in a record: its manifest, and the digest of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheRecord {
    #[serde(flatten)]
    pub manifest: CacheManifest,
    pub sha256: Digest,
}

impl CacheManifest {
    /// Returns the digest of its file, which is that of the cache: through the digest of the index it covers every row.
    pub fn sha256(&self) -> Digest {
        Digest::of(text(self).as_bytes())
    }

    /// Returns the bytes of the rows of so many sequences, on the average.
    pub fn mean_bytes(&self, sequences: u64) -> u64 {
        (u128::from(sequences) * u128::from(self.hidden_bytes) / u128::from(self.sequences.max(1))) as u64
    }
}

/// Returns the one text of a file.
pub(super) fn text(of: &impl Serialize) -> String {
    serde_json::to_string_pretty(of).expect("plain data serializes") + "\n"
}

/// Reads a file that [`text`] has made; none if it is not there.
///
/// # Errors
/// [`CacheError::Format`], [`CacheError::Damaged`] and those of I/O.
pub(super) fn read<T: Serialize + DeserializeOwned>(path: &Path) -> Result<Option<T>, CacheError> {
    read_trusted(path, &[])
}

/// Reads a file that [`text`] has made, and that one of these keys has signed, if there are any; none if it is not
/// there. Nothing of it is parsed before its signature has been checked.
///
/// # Errors
/// [`CacheError::Signature`], and as [`read`].
pub(super) fn read_trusted<T: Serialize + DeserializeOwned>(
    path: &Path,
    trusted: &[TrustedKey],
) -> Result<Option<T>, CacheError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let bytes = match input::read(path, input::SETTINGS_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CacheError::reading(path)(error)),
    };
    if !trusted.is_empty() {
        check_signature(path, &bytes, trusted)?;
    }
    let damaged = |error: serde_json::Error| CacheError::damaged(path, error.to_string());
    let Version { format } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if format != FORMAT {
        return Err(CacheError::Format { path: path.to_owned(), format });
    }
    let value: T = serde_json::from_slice(&bytes).map_err(damaged)?;
    match text(&value).as_bytes() == bytes {
        true => Ok(Some(value)),
        false => Err(CacheError::damaged(path, "it is not what `precast cache` writes")),
    }
}

fn check_signature(path: &Path, bytes: &[u8], trusted: &[TrustedKey]) -> Result<(), CacheError> {
    let beside = signature_path(path);
    let signature = match input::read(&beside, input::SETTINGS_BYTES) {
        // Also where it is no text: that is refused.
        Ok(signature) => Some(String::from_utf8_lossy(&signature).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(CacheError::io("read", beside)(error)),
    };
    let checked = TrustedKey::check(trusted, bytes, signature.as_deref(), &beside);
    checked.map(drop).map_err(|error| CacheError::Signature { path: path.to_owned(), error })
}
