//! Computes the sequences that a cache lacks, and writes what is computed on another thread.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use precast_system::progress::{Progress, Unit};
use rayon::prelude::*;

use super::engine::{Engine, WAITING};
use super::sequences::{Contents, Sequence, each};
use crate::inputs::teacher_cache::{CacheError, Entry, Filling, Key};
use crate::programs::failure::Failure;
use crate::run::identity::Data;

/// Bytes of hidden states between two points that a filling continues from.
const SYNC_BYTES: u64 = 256 << 20;
/// Time between them, at most: what a kill loses.
const SYNC_AFTER: Duration = Duration::from_secs(10);

/// Sequences, and their hidden states.
type Computed = (Vec<Arc<Sequence>>, Vec<u8>);

/// Fills a cache. Returns the tokens that were computed, those that do not count too.
///
/// # Errors
/// [`Failure`] of data, also where they have lost sequences since they were counted, of teacher, device or disk: what
/// was written before stays.
pub fn fill(engine: &mut dyn Engine, filling: &mut Filling, contents: &Contents, data: &Data) -> Result<u64, Failure> {
    let progress = Progress::start("hidden states", Unit::Things("sequences"));
    let all = contents.sequences;
    progress.set(filling.sequences(), all);
    let mut missing = contents.missing(|key| filling.has(key));
    let (send, receive) = sync_channel(WAITING);
    let tokens = thread::scope(|scope| {
        let (progress, filling) = (&progress, &mut *filling);
        let writer = scope.spawn(move || write(filling, receive, SYNC_AFTER, |count| progress.add(count as u64, all)));
        let computed = compute(engine, contents.seq_len, &mut missing, data, &send);
        drop(send);
        // Where writing has failed, nothing more was computed.
        writer.join().expect("writing does not panic")?;
        computed
    })?;
    filling.check_lost(missing.len())?;
    Ok(tokens)
}

/// Computes the sequences that are missing, as many at a time as the engine takes, until nobody takes them.
fn compute(
    engine: &mut dyn Engine,
    seq_len: u32,
    missing: &mut HashSet<Key>,
    data: &Data,
    send: &SyncSender<Computed>,
) -> Result<u64, Failure> {
    let (most, mut tokens) = (engine.sequences(), 0);
    let mut group: Vec<Arc<Sequence>> = Vec::new();
    let mut launch = |group: Vec<Arc<Sequence>>| {
        let (mut next, mut is_taken) = (group.iter(), true);
        engine.rows(&group, &mut |count, hidden| {
            let own: Vec<Arc<Sequence>> = next.by_ref().take(count).map(Arc::clone).collect();
            tokens += u64::from(seq_len) * count as u64;
            is_taken = is_taken && send.send((own, hidden)).is_ok();
            Ok(())
        })?;
        Ok::<_, Failure>(is_taken)
    };
    let goes_on = each(data, seq_len, |sequence| {
        if missing.remove(&sequence.key) {
            group.push(Arc::new(sequence));
        }
        if group.len() == most { launch(std::mem::take(&mut group)) } else { Ok(true) }
    })?;
    if goes_on && !group.is_empty() {
        launch(group)?;
    }
    Ok(tokens)
}

/// Writes what is computed, as long as anything is. No more than `sync_after` passes before it is durable.
fn write(
    filling: &mut Filling,
    computed: Receiver<Computed>,
    sync_after: Duration,
    written: impl Fn(usize),
) -> Result<(), CacheError> {
    let (mut unsynced, mut synced) = (0, Instant::now());
    loop {
        let count = match computed.recv_timeout(sync_after.saturating_sub(synced.elapsed())) {
            Ok((sequences, hidden)) => {
                unsynced += push(filling, &sequences, &hidden)?;
                sequences.len()
            }
            Err(RecvTimeoutError::Timeout) => 0,
            Err(RecvTimeoutError::Disconnected) => return filling.sync(),
        };
        if unsynced >= SYNC_BYTES || synced.elapsed() >= sync_after {
            filling.sync()?;
            (unsynced, synced) = (0, Instant::now());
        }
        written(count);
    }
}

/// Adds sequences with their hidden states, a row a token; returns the bytes of those that count.
fn push(filling: &mut Filling, sequences: &[Arc<Sequence>], hidden: &[u8]) -> Result<u64, CacheError> {
    let each = sequences.par_iter().zip(hidden.par_chunks_exact(hidden.len() / sequences.len()));
    let entries: Vec<Entry<'_>> =
        each.map(|(sequence, rows)| Entry::new(sequence.key, sequence.counted_rows(rows))).collect();
    let bytes = entries.iter().map(Entry::bytes).sum();
    entries.into_iter().try_for_each(|entry| filling.push(entry))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::engine::Emit;
    use super::*;
    use crate::inputs::data::{Corpus, Files, Packing, Reader, Streams};
    use crate::inputs::teacher_cache::{Made, made};

    /// Says nothing of any token, in rows of two bytes.
    struct Silent;

    impl Engine for Silent {
        fn sequences(&self) -> usize {
            2
        }

        fn rows(&mut self, sequences: &[Arc<Sequence>], emit: &mut Emit<'_>) -> Result<(), Failure> {
            emit(sequences.len(), vec![0; sequences.len() * 2 * 2])
        }
    }

    /// Sequences of two tokens.
    fn data(path: &Path, ids: &[u32]) -> Data {
        std::fs::write(path, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let reader = Reader { vocab: 100, ..Reader::default() };
        let corpus = Corpus::new(Files::open(&[path.to_owned()], None).unwrap(), 2, Packing::Stream, reader);
        Data { streams: Streams::start(Arc::new(corpus.unwrap())), held_out: None, tokenizer: None, eos: None }
    }

    fn filling(dir: &Path) -> Filling {
        let made = Made { hidden: 1, seq_len: 2, ..made() };
        Filling::open(&dir.join("cache"), &made).unwrap()
    }

    #[test]
    fn data_that_lose_sequences_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (before, after) = ([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 5]);
        let contents = Contents::of(&data(&dir.path().join("before.bin"), &before), 2).unwrap();
        let after = data(&dir.path().join("after.bin"), &after);
        let mut filling = filling(dir.path());
        let lost = fill(&mut Silent, &mut filling, &contents, &after).unwrap_err();
        assert!(matches!(lost, Failure::Cache(CacheError::DataChanged { lost: 2, .. })), "{lost}");
        assert_eq!(filling.sequences(), 1);
    }

    /// Without waiting for the bytes after which it is, or for the end.
    #[test]
    fn what_is_written_is_durable_after_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let data = data(&dir.path().join("data.bin"), &[1, 2, 3, 4, 5, 6]);
        let mut filling = filling(dir.path());
        let index = dir.path().join("cache/index.bin");
        let mut sequences = Vec::new();
        each(&data, 2, |sequence| {
            sequences.push(Arc::new(sequence));
            Ok(true)
        })
        .unwrap();
        let (send, receive) = sync_channel(1);
        send.send((sequences, vec![0; 8])).unwrap();
        let records = || index.metadata().unwrap().len() / 64;
        let send = std::cell::RefCell::new(Some(send));
        write(&mut filling, receive, Duration::ZERO, |_| {
            assert_eq!(records(), 2);
            drop(send.borrow_mut().take());
        })
        .unwrap();
        assert!(send.borrow().is_none());
    }
}
