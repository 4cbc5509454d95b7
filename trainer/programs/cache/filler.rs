//! Computes the sequences that a cache lacks, and writes what is computed on another thread.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use precast_system::progress::{Progress, Unit};
use rayon::prelude::*;

use super::engine::{Engine, WAITING};
use super::sequences::{Contents, Sequence, each};
use crate::inputs::teacher_cache::{CacheError, Entry, Filling, Key};
use crate::programs::failure::Failure;
use crate::run::identity::Data;

/// Bytes of hidden states between two points that a filling continues from.
const SYNC_BYTES: u64 = 256 << 20;
/// Sequences, and their hidden states.
type Computed = (Vec<Arc<Sequence>>, Vec<u8>);

/// Fills a cache. Returns the tokens that were computed, those that do not count too.
///
/// # Errors
/// [`Failure`] of data, teacher, device or disk: what was written before stays.
pub fn fill(engine: &mut dyn Engine, filling: &mut Filling, contents: &Contents, data: &Data) -> Result<u64, Failure> {
    let progress = Progress::start("hidden states", Unit::Things("sequences"));
    let all = contents.sequences;
    progress.set(filling.sequences(), all);
    let missing = contents.missing(|key| filling.has(key));
    let (send, receive) = sync_channel(WAITING);
    thread::scope(|scope| {
        let progress = &progress;
        let writer = scope.spawn(move || write(filling, receive, |count| progress.add(count as u64, all)));
        let computed = compute(engine, (contents, missing), data, &send);
        drop(send);
        // Where writing has failed, nothing more was computed.
        writer.join().expect("writing does not panic")?;
        computed
    })
}

/// Computes the sequences that are missing, as many at a time as the engine takes, until nobody takes them.
fn compute(
    engine: &mut dyn Engine,
    (contents, mut missing): (&Contents, HashSet<Key>),
    data: &Data,
    send: &SyncSender<Computed>,
) -> Result<u64, Failure> {
    let (most, mut tokens) = (engine.sequences(), 0);
    let mut group: Vec<Arc<Sequence>> = Vec::new();
    let mut launch = |group: Vec<Arc<Sequence>>| {
        let (mut next, mut is_taken) = (group.iter(), true);
        engine.hidden(&group, &mut |count, hidden| {
            let own: Vec<Arc<Sequence>> = next.by_ref().take(count).map(Arc::clone).collect();
            tokens += u64::from(contents.seq_len) * count as u64;
            is_taken = is_taken && send.send((own, hidden)).is_ok();
            Ok(())
        })?;
        Ok::<_, Failure>(is_taken)
    };
    let goes_on = each(data, contents.seq_len, |sequence| {
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

/// Writes what is computed, as long as anything is.
fn write(filling: &mut Filling, computed: Receiver<Computed>, written: impl Fn(usize)) -> Result<(), CacheError> {
    let mut unsynced = 0;
    for (sequences, hidden) in computed {
        let each = sequences.par_iter().zip(hidden.par_chunks_exact(hidden.len() / sequences.len()));
        let each = each.map(|(sequence, rows)| Entry::new(sequence.key, sequence.counted_rows(rows)));
        for entry in each.collect::<Vec<_>>() {
            unsynced += entry.bytes();
            filling.push(entry)?;
        }
        if unsynced >= SYNC_BYTES {
            filling.sync()?;
            unsynced = 0;
        }
        written(sequences.len());
    }
    filling.sync()
}
