//! The sequences of a run's data, each with its key.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use precast_fatbins::Digest;
use precast_kernels::abi::MASKED_TOKEN;

use crate::inputs::data::{Chunk, DataError, Dataset, MicroBatch, Places};
use crate::inputs::teacher_cache::{Key, RECORD_BYTES};
use crate::run::failure::Failure;
use crate::run::identity::Data;

/// A sequence, and its key.
pub struct Sequence {
    pub key: Key,
    chunk: Chunk,
}

impl Sequence {
    fn of(chunk: &Chunk, seq_len: u32) -> Self {
        Self { key: Key::of_chunk(chunk, seq_len).0, chunk: chunk.clone() }
    }

    /// Places that it takes.
    pub fn places(&self) -> usize {
        self.chunk.targets().len()
    }

    /// Returns those of its rows, one a place, that are of tokens that count.
    pub fn counted_rows<'r>(&self, rows: &'r [u8]) -> Cow<'r, [u8]> {
        let targets = self.chunk.targets();
        if self.chunk.counted() == targets.len() {
            return Cow::Borrowed(rows);
        }
        let each = rows.chunks_exact(rows.len() / targets.len());
        let counted = targets.iter().zip(each).filter(|(target, _)| **target != MASKED_TOKEN);
        Cow::Owned(counted.map(|(_, row)| row).collect::<Vec<_>>().concat())
    }
}

/// Sequences that are computed together, end to end.
pub type Micro = Arc<[Sequence]>;

/// Returns the places that the sequences of a micro-batch take.
pub fn taken(micro: &[Sequence]) -> usize {
    micro.iter().map(Sequence::places).sum()
}

/// Lays a micro-batch out in so many places.
pub fn laid_out(micro: &[Sequence], places: Places) -> MicroBatch {
    MicroBatch::laid_out(micro.iter().map(|sequence| &sequence.chunk), places)
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
    /// Places that each takes, in their order.
    lengths: Vec<usize>,
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
        let (mut keys, mut lengths, mut rows) = (HashSet::new(), Vec::new(), 0);
        each(data, seq_len, |sequence| {
            if keys.insert(sequence.key) {
                lengths.push(sequence.places());
                rows += sequence.chunk.counted() as u64;
            }
            Ok(true)
        })?;
        Ok(Self { sequences: keys.len() as u64, keys, lengths, seq_len, rows })
    }

    /// Places that those behind the first so many take.
    pub fn behind(&self, there: u64) -> &[usize] {
        &self.lengths[there as usize..]
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
