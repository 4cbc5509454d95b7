//! The rows of a cached teacher, laid out for micro-batches: hidden states, or the most likely tokens.

use std::sync::Arc;

use precast_kernels::abi::{MASKED_TOKEN, NO_TOKEN};
use rayon::prelude::*;

use crate::inputs::data::{Chunk, MicroBatch};
use crate::inputs::teacher_cache::{CacheError, Key, TeacherCache};

/// A cache, and memory for the hidden states of a micro-batch.
pub struct HiddenStates {
    cache: Arc<TeacherCache>,
    seq_len: usize,
    row_bytes: usize,
    /// Bytes of the parts of a row, which go to tensors of their own.
    widths: Vec<usize>,
    /// Tokens that those of rows must be below; none of hidden states.
    vocab: Option<u32>,
    laid_out: Vec<Vec<u8>>,
    /// None where sequences have their own hidden states.
    turn: Option<Turn>,
    pub read: ReadStates,
}

/// Keys of all sequences of a cache, and the number of those that have been used, over and over.
struct Turn {
    keys: Vec<Key>,
    used: usize,
}

impl Turn {
    /// Returns the keys whose turn it is after `more` others.
    fn after(&self, more: usize, count: usize) -> impl Iterator<Item = Key> {
        let first = self.used + more;
        (first..first + count).map(|number| self.keys[number % self.keys.len()])
    }
}

/// Micro-batches whose hidden states have been read, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadStates {
    pub batches: u64,
    pub bytes: u64,
}

impl HiddenStates {
    /// Reads rows from a cache.
    pub fn of(cache: &Arc<TeacherCache>) -> Self {
        let made = &cache.manifest().made;
        let widths: Vec<usize> = made.parts().into_iter().map(|bytes| bytes as usize).collect();
        Self {
            cache: Arc::clone(cache),
            seq_len: made.seq_len as usize,
            row_bytes: widths.iter().sum(),
            vocab: made.compact.map(|compact| compact.student_vocab),
            laid_out: vec![Vec::new(); widths.len()],
            widths,
            turn: None,
            read: ReadStates::default(),
        }
    }

    /// Gives sequences the hidden states of the cache's sequences in turn from now on, whatever they are: random ones
    /// are in no cache.
    pub fn in_turn(&mut self) {
        let keys = self.cache.keys();
        self.turn = (!keys.is_empty()).then_some(Turn { keys, used: 0 });
    }

    /// Starts reading, on other threads, the `sequences` keys that follow the next `sequences` ones in turn.
    pub fn read_ahead_in_turn(&self, sequences: usize) {
        if let Some(turn) = &self.turn {
            self.cache.read_ahead(&turn.after(sequences, sequences).collect::<Vec<Key>>());
        }
    }

    /// Returns the keys of a micro-batch's sequences, none of one in which no token counts.
    fn keys(&mut self, batch: &MicroBatch) -> Vec<Option<Key>> {
        if let Some(turn) = &mut self.turn {
            let keys: Vec<Option<Key>> = turn.after(0, batch.lengths.len()).map(Some).collect();
            turn.used += keys.len();
            return keys;
        }
        let seq_len = self.seq_len as u32;
        let [ids, targets] = [&batch.ids, &batch.targets].map(|tokens| batch.sequences(tokens));
        let sequences = ids.into_par_iter().zip(targets).zip(&batch.ends);
        let key = |((ids, targets), end): ((&[u32], &[u32]), &u32)| {
            let counts = targets.iter().any(|target| *target != MASKED_TOKEN);
            counts.then(|| Key::of_row(ids, targets, *end, seq_len))
        };
        sequences.map(key).collect()
    }

    /// Returns the rows of a micro-batch, part by part as tensors have them: zero where a token does not count.
    ///
    /// # Errors
    /// [`CacheError`] where the cache lacks a sequence or holds other bytes than were written, or tokens that there are
    /// not.
    pub fn of_batch(&mut self, batch: &MicroBatch) -> Result<&[Vec<u8>], CacheError> {
        let keys = self.keys(batch);
        let Self { cache, row_bytes, widths, vocab, laid_out, turn, .. } = self;
        let is_own = turn.is_none();
        laid_out.iter_mut().zip(&*widths).for_each(|(part, width)| part.resize(batch.ids.len() * width, 0));
        let mut parts: Vec<&mut [u8]> = laid_out.iter_mut().map(Vec::as_mut_slice).collect();
        let mut places: Vec<Vec<&mut [u8]>> = Vec::new();
        for length in &batch.lengths {
            let taken =
                parts.iter_mut().zip(&*widths).map(|(part, width)| part.split_off_mut(..*length as usize * width));
            places.push(taken.map(|place| place.expect("sequences that take all places")).collect());
        }
        let sequences = keys.into_par_iter().zip(batch.sequences(&batch.targets));
        let read = sequences.zip(places).map(|((key, targets), mut places)| {
            let Some(key) = key else {
                places.into_iter().for_each(|place| place.fill(0));
                return Ok(0);
            };
            let read = cache.read(&key)?;
            let counted = targets.iter().filter(|target| **target != MASKED_TOKEN).count();
            if is_own && read.len() != counted * *row_bytes {
                return Err(cache.of_other_rows(&key, counted));
            }
            if vocab.is_some_and(|vocab| !have_tokens(vocab, &read, (*row_bytes, widths[0]))) {
                return Err(cache.of_other_tokens(&key));
            }
            // In turn it may have fewer.
            let mut stored = read.chunks_exact(*row_bytes).cycle();
            for (position, target) in targets.iter().enumerate() {
                let mut row = match *target {
                    MASKED_TOKEN => None,
                    _ => stored.next(),
                };
                for (place, width) in places.iter_mut().zip(&*widths) {
                    let to = &mut place[position * width..][..*width];
                    match &mut row {
                        None => to.fill(0),
                        Some(row) => to.copy_from_slice(row.split_off(..*width).expect("a row has all parts")),
                    }
                }
            }
            Ok(read.len() as u64)
        });
        let bytes = read.sum::<Result<u64, CacheError>>()?;
        self.read = ReadStates { batches: self.read.batches + 1, bytes: self.read.bytes + bytes };
        Ok(&self.laid_out)
    }

    /// Has the cache read sequences on other threads.
    pub fn read_ahead<'c>(&self, chunks: impl Iterator<Item = &'c Arc<Chunk>>) {
        let keys = chunks
            .collect::<Vec<_>>()
            .into_par_iter()
            .filter(|chunk| chunk.counted() > 0)
            .map(|chunk| Key::of_chunk(chunk, self.seq_len as u32).0);
        self.cache.read_ahead(&keys.collect::<Vec<Key>>());
    }
}

/// True if each row begins with distinct tokens below a bound, and none behind them: a kernel writes to their places.
fn have_tokens(vocab: u32, rows: &[u8], (row_bytes, ids_bytes): (usize, usize)) -> bool {
    let mut ids = Vec::new();
    rows.chunks_exact(row_bytes).all(|row| {
        ids.clear();
        ids.extend(row[..ids_bytes].as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)));
        let tokens = ids.iter().position(|id| *id == NO_TOKEN).unwrap_or(ids.len());
        if ids.drain(tokens..).any(|id| id != NO_TOKEN) {
            return false;
        }
        ids.sort_unstable();
        ids.windows(2).all(|two| two[0] < two[1]) && ids.last().is_some_and(|last| *last < vocab)
    })
}

#[cfg(test)]
mod tests {
    use precast_fatbins::Digest;

    use super::*;
    use crate::device::tests::made;
    use crate::inputs::teacher_cache::{Compact, Entry, Filling, Made};

    #[test]
    fn a_record_of_other_rows_than_count_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = Made { hidden: 1, seq_len: 2, ..made() };
        let sequences = [[1, 2], [3, 4], [5, 6]];
        let mut filling = Filling::open(dir.path(), &made).unwrap();
        for (ids, rows) in sequences.iter().zip([&[7; 2][..], &[7; 4], &[7; 2]]) {
            filling.push(Entry::new(Key::of(ids, &[2, MASKED_TOKEN]), rows)).unwrap();
        }
        filling.finish(Digest::of(b"head")).unwrap();
        let cache = Arc::new(TeacherCache::open(dir.path()).unwrap());
        let mut states = HiddenStates::of(&cache);
        let mut read = |ids: [u32; 2]| {
            states
                .of_batch(&MicroBatch::of(
                    &[Chunk { ids: ids.into(), labels: Some(vec![MASKED_TOKEN, 2]), ..Chunk::default() }],
                    (1, 2),
                ))
                .map(|parts| parts.concat())
        };
        assert_eq!(read([1, 2]).unwrap(), [7, 7, 0, 0]);
        let refused = read([3, 4]).unwrap_err();
        assert!(matches!(&refused, CacheError::Damaged { path, .. } if path.ends_with("index.bin")), "{refused}");
        assert_eq!(read([5, 6]).unwrap(), [7, 7, 0, 0]);
    }

    /// A kernel writes to the places of these tokens: one that is not in the vocabulary, or is there twice, ends the
    /// step.
    #[test]
    fn tokens_beyond_the_vocabulary_or_twice_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let compact = Compact { keep_logits: 2, temperature: 1.0, student_vocab: 12 };
        let made = Made { compact: Some(compact), seq_len: 2, ..made() };
        let mut filling = Filling::open(dir.path(), &made).unwrap();
        for (id, [first, other]) in
            [(1, [0, 11]), (3, [0, 12]), (5, [0, 0]), (7, [0, NO_TOKEN]), (8, [NO_TOKEN, 0]), (9, [NO_TOKEN; 2])]
        {
            let rows: Vec<u8> = [first, other, 1, 2, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
            filling.push(Entry::new(Key::of(&[id, 2], &[2, MASKED_TOKEN]), &rows)).unwrap();
        }
        filling.finish(Digest::of(b"head")).unwrap();
        let mut states = HiddenStates::of(&Arc::new(TeacherCache::open(dir.path()).unwrap()));
        let mut read = |id| states.of_batch(&MicroBatch::of(&[Chunk::plain([id, 2])], (1, 2))).map(<[Vec<u8>]>::to_vec);
        let parts = read(1).unwrap();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [16, 24]);
        assert_eq!(
            (&parts[0][4..8], &parts[0][8..], &parts[1][8..12]),
            (&[11, 0, 0, 0][..], &[0; 8][..], &[3, 0, 0, 0][..])
        );
        assert!(read(7).is_ok());
        for (id, what) in [(3, "beyond the vocabulary"), (5, "a token twice"), (8, "behind none"), (9, "no token")] {
            let refused = read(id).unwrap_err();
            let is_damaged = matches!(&refused, CacheError::Damaged { path, .. } if path.ends_with("hidden.bin"));
            assert!(is_damaged, "{what}: {refused}");
        }
    }
}
