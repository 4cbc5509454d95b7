//! The sequences of a run's data, each with its key.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use precast_fatbins::Digest;
use precast_kernels::abi::MASKED_TOKEN;

use crate::inputs::data::{Chunk, DataError, Dataset};
use crate::inputs::teacher_cache::{Key, RECORD_BYTES};
use crate::run::failure::Failure;
use crate::run::identity::Data;

/// A sequence as a device is sent it.
pub struct Sequence {
    pub key: Key,
    pub ids: Vec<u32>,
    targets: Vec<u32>,
}

impl Sequence {
    fn of(chunk: &Chunk, seq_len: u32) -> Self {
        let (key, ids, targets) = Key::of_chunk(chunk, seq_len);
        Self { key, ids, targets }
    }

    fn counted(&self) -> u64 {
        self.targets.iter().filter(|target| **target != MASKED_TOKEN).count() as u64
    }

    /// Returns those of its rows, one a token, that are of tokens that count.
    pub fn counted_rows<'r>(&self, rows: &'r [u8]) -> Cow<'r, [u8]> {
        if self.targets.iter().all(|target| *target != MASKED_TOKEN) {
            return Cow::Borrowed(rows);
        }
        let each = rows.chunks_exact(rows.len() / self.ids.len());
        let counted = self.targets.iter().zip(each).filter(|(target, _)| **target != MASKED_TOKEN);
        Cow::Owned(counted.map(|(_, row)| row).collect::<Vec<_>>().concat())
    }
}

/// Lays the ids of sequences out for a tensor of so many elements, 0 behind them.
pub fn laid_out(sequences: &[Arc<Sequence>], elems: u64) -> Vec<u32> {
    let mut ids: Vec<u32> = sequences.iter().flat_map(|sequence| &sequence.ids).copied().collect();
    ids.resize(elems as usize, 0);
    ids
}

/// Calls `take` for each sequence of which a token counts, those that are held out last, until it returns false.
pub fn each(
    data: &Data,
    seq_len: u32,
    mut take: impl FnMut(Sequence) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let mut ended: Result<bool, Failure> = Ok(true);
    let mut emit = |chunk: &Chunk| {
        if chunk.counted() > 0 {
            ended = take(Sequence::of(chunk, seq_len));
        }
        matches!(ended, Ok(true))
    };
    let read: Result<_, DataError> = data.streams.corpus.pass_while(&mut |chunk| emit(&chunk));
    read?;
    let mut held_out = data.held_out.iter().flat_map(|held_out| &held_out.chunks);
    let _ = held_out.all(emit);
    ended
}

/// Returns the digest of the sequences of data, in their order.
pub fn digest(data: &Dataset, seq_len: u32) -> Digest {
    let keys: Vec<[u8; 32]> = data.chunks.iter().map(|chunk| Key::of_chunk(chunk, seq_len).0.bytes()).collect();
    Digest::of_parts("precast.held-out", keys.iter().map(|key| &key[..]))
}

/// Counts of the distinct sequences of data.
pub struct Contents {
    keys: HashSet<Key>,
    pub seq_len: u32,
    pub sequences: u64,
    /// Tokens of them that count.
    pub rows: u64,
}

impl Contents {
    /// Reads data once.
    ///
    /// # Errors
    /// [`Failure`] of data that cannot be read.
    pub fn of(data: &Data, seq_len: u32) -> Result<Self, Failure> {
        let (mut keys, mut rows) = (HashSet::new(), 0);
        each(data, seq_len, |sequence| {
            if keys.insert(sequence.key) {
                rows += sequence.counted();
            }
            Ok(true)
        })?;
        Ok(Self { sequences: keys.len() as u64, keys, seq_len, rows })
    }

    /// Bytes of their rows, of so many each, and of the index.
    pub fn bytes(&self, row_bytes: u64) -> u64 {
        self.rows * row_bytes + self.sequences * RECORD_BYTES as u64
    }

    /// True if it is the key of one of them.
    pub fn has(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    /// Returns the keys that are not there yet.
    pub fn missing(&self, is_there: impl Fn(&Key) -> bool) -> HashSet<Key> {
        self.keys.iter().filter(|key| !is_there(key)).copied().collect()
    }
}
