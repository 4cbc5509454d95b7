//! Computes the sequences that a cache lacks, and writes what is computed on another thread.

use std::collections::HashSet;
use std::io::{self, BufReader, BufWriter};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use precast_system::progress::{Progress, Unit};
use rayon::prelude::*;

use super::engine::{Engine, WAITING};
use super::peers::Peers;
use super::sequences::{Contents, Micro, Sequence, each, taken};
use crate::inputs::data::{self, Places};
use crate::inputs::teacher_cache::{CacheError, Entry, Filling, Key, Made, receive_entries, send_entries};
use crate::ranks::RankError;
use crate::run::failure::Failure;
use crate::run::identity::Data;

/// Bytes of rows between two points that a filling continues from.
pub const SYNC_BYTES: u64 = 256 << 20;
/// Time between them, at most: what a kill loses.
const SYNC_AFTER: Duration = Duration::from_secs(10);

/// A batch of sequences: with their rows, one a place, or as another rank has sent them.
enum Batch {
    Computed(Micro, Vec<u8>),
    Received(Vec<Entry<'static>>),
}

impl Batch {
    /// Returns each sequence with its rows of tokens that count.
    fn entries(&self) -> Vec<Entry<'_>> {
        match self {
            Self::Computed(micro, hidden) => {
                let (mut hidden, row_bytes) = (&**hidden, hidden.len() / taken(micro));
                let mut own =
                    |sequence: &Sequence| hidden.split_off(..sequence.places() * row_bytes).expect("its rows");
                let each: Vec<(&Sequence, &[u8])> = micro.iter().map(|sequence| (sequence, own(sequence))).collect();
                let entry = |(sequence, rows): (&Sequence, _)| Entry::new(sequence.key, sequence.counted_rows(rows));
                each.into_par_iter().map(entry).collect()
            }
            Self::Received(entries) => entries.iter().map(Entry::borrowed).collect(),
        }
    }
}

/// Sequences that a rank computes: of all that are missing, in their order, its micro-batches.
pub struct Deal<'p> {
    pub peers: &'p Peers,
    /// Places of a micro-batch.
    pub places: Places,
}

/// Fills a cache with what this rank computes, and what the others send.
///
/// # Errors
/// [`Failure`] of data, also where they have lost sequences since they were counted, of teacher, device, disk or
/// another rank: what was written before stays.
pub fn fill(
    engine: &mut dyn Engine,
    filling: &mut Filling,
    contents: &Contents,
    data: &Data,
    deal: &Deal<'_>,
) -> Result<(), Failure> {
    let progress = Progress::start("cache", Unit::Things("sequences"));
    let all = contents.sequences;
    progress.set(filling.sequences(), all);
    let mut missing = contents.missing(|key| filling.has(key));
    let made = filling.made().clone();
    thread::scope(|scope| {
        let (progress, filling) = (&progress, &mut *filling);
        let (send, receive) = sync_channel(WAITING);
        let (mut batches, mut readers) = (vec![receive], Vec::new());
        for (rank, stream) in (1..).zip(&deal.peers.streams) {
            let (send, receive) = sync_channel(WAITING);
            let made = &made;
            batches.push(receive);
            readers.push(scope.spawn(move || {
                receive_all(stream, made, &send).map_err(RankError::io(&format!("receive rows from rank {rank}")))
            }));
        }
        let writer = scope.spawn(move || {
            let is_asked = |key: &Key| contents.has(key);
            write(filling, &batches, (SYNC_AFTER, &is_asked), |count| progress.add(count as u64, all))
        });
        let computed = compute(engine, contents.seq_len, &mut missing, data, (deal, 0), &send);
        if computed.is_err() {
            deal.peers.shut_down();
        }
        drop(send);
        // Where writing has failed or another rank has, nothing more was computed.
        let written = writer.join().expect("writing does not panic");
        // Not before this rank can say why: a peer whose connection ends first would be why all end. Where all is
        // written the others have yet to say that no more follows.
        if written.is_err() {
            deal.peers.shut_down();
        }
        let received = readers.into_iter().map(|reader| reader.join().expect("receiving does not panic"));
        let received = received.collect::<Vec<Result<(), RankError>>>();
        computed?;
        written?;
        Ok::<_, Failure>(received.into_iter().collect::<Result<(), RankError>>()?)
    })?;
    Ok(filling.check_lost(all)?)
}

/// Computes this rank's share of a cache that has the first `there` sequences, and sends it to rank 0.
///
/// # Errors
/// [`Failure`] of data, teacher or device, or of another rank.
pub fn help(
    engine: &mut dyn Engine,
    contents: &Contents,
    data: &Data,
    (deal, there): (&Deal<'_>, u64),
) -> Result<(), Failure> {
    let mut missing = contents.missing(|_| false);
    let mut stream = &deal.peers.streams[0];
    let (send, receive) = sync_channel::<Batch>(WAITING);
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            receive.into_iter().try_for_each(|batch| send_entries(&mut BufWriter::new(stream), &batch.entries()))
        });
        let computed = compute(engine, contents.seq_len, &mut missing, data, (deal, there), &send);
        drop(send);
        let sent = sender.join().expect("sending does not panic");
        computed?;
        Ok::<_, Failure>(sent.map_err(to_first())?)
    })?;
    Ok(send_entries(&mut stream, &[]).map_err(to_first())?)
}

fn to_first() -> impl FnOnce(io::Error) -> RankError {
    RankError::io("send rows to rank 0")
}

/// Takes what a rank sends, until it has sent all or nobody takes it.
fn receive_all(stream: &TcpStream, made: &Made, send: &SyncSender<Batch>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let entries = receive_entries(&mut stream, made)?;
        if entries.is_empty() || send.send(Batch::Received(entries)).is_err() {
            return Ok(());
        }
    }
}

/// Computes this rank's share of the sequences that are missing behind the first `there`, as many micro-batches at a
/// time as the engine takes, until nobody takes them.
fn compute(
    engine: &mut dyn Engine,
    seq_len: u32,
    missing: &mut HashSet<Key>,
    data: &Data,
    (deal, there): (&Deal<'_>, u64),
    send: &SyncSender<Batch>,
) -> Result<(), Failure> {
    let most = engine.micros();
    let mut launch = |micros: Vec<Micro>| {
        let (mut next, mut is_taken) = (micros.iter(), true);
        engine.rows(&micros, &mut |hidden| {
            let micro = Arc::clone(next.next().expect("rows of each micro-batch"));
            is_taken = is_taken && send.send(Batch::Computed(micro, hidden)).is_ok();
            Ok(())
        })?;
        Ok::<_, Failure>(is_taken)
    };
    let (mut filling, mut begun, mut own) = (data::Filling::new(deal.places), Vec::new(), Vec::new());
    let (mut left, mut number) = (there, 0);
    let goes_on = each(data, seq_len, |sequence| {
        if !missing.remove(&sequence.key) {
            return Ok(true);
        }
        if left > 0 {
            left -= 1;
            return Ok(true);
        }
        if filling.take(sequence.places()).is_some() {
            let micro: Micro = std::mem::take(&mut begun).into();
            own.extend(deal.peers.is_own(number).then_some(micro));
            number += 1;
        }
        begun.push(sequence);
        if own.len() == most { launch(std::mem::take(&mut own)) } else { Ok(true) }
    })?;
    own.extend((!begun.is_empty() && deal.peers.is_own(number)).then(|| begun.into()));
    if goes_on && !own.is_empty() {
        launch(own)?;
    }
    Ok(())
}

/// Writes batches, one of each rank in turn, as long as there are any. No more than `sync_after` passes before one is
/// durable. Sequences that nobody has asked for, or that are there, are those of data that have changed.
fn write(
    filling: &mut Filling,
    batches: &[Receiver<Batch>],
    (sync_after, is_asked): (Duration, &dyn Fn(&Key) -> bool),
    written: impl Fn(usize),
) -> Result<(), CacheError> {
    let (mut unsynced, mut synced, mut turn) = (0, Instant::now(), 0);
    loop {
        let count = match batches[turn % batches.len()].recv_timeout(sync_after.saturating_sub(synced.elapsed())) {
            Ok(batch) => {
                let mut entries = batch.entries();
                entries.retain(|entry| is_asked(entry.key()) && !filling.has(entry.key()));
                let count = entries.len();
                unsynced += entries.iter().map(Entry::bytes).sum::<u64>();
                entries.into_iter().try_for_each(|entry| filling.push(entry))?;
                turn += 1;
                count
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::engine::Emit;
    use super::*;
    use crate::device::tests::made;
    use crate::inputs::data::{Chunking, Corpus, Files, Packing, Reader, Streams};
    use crate::inputs::teacher_cache::Made;
    use crate::ranks::Ranks;

    /// Says nothing of any token, in rows of two bytes.
    struct Silent;

    impl Engine for Silent {
        fn micros(&self) -> usize {
            1
        }

        fn rows(&mut self, micros: &[Micro], emit: &mut Emit<'_>) -> Result<(), Failure> {
            micros.iter().try_for_each(|micro| emit(vec![0; taken(micro) * 2]))
        }
    }

    /// Sequences of two tokens.
    fn data(path: &Path, ids: &[u32]) -> Data {
        std::fs::write(path, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let reader = Reader { vocab: 100, ..Reader::default() };
        let corpus = Corpus::new(Files::open(&[path.to_owned()], None).unwrap(), 2, Chunking::Stream, reader);
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
        let peers = Peers::connect(&Ranks::default()).unwrap();
        let deal = Deal { peers: &peers, places: Places::new(2, 2, Packing::Rows) };
        let lost = fill(&mut Silent, &mut filling, &contents, &after, &deal).unwrap_err();
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
            sequences.push(sequence);
            Ok(true)
        })
        .unwrap();
        let (send, receive) = sync_channel(1);
        send.send(Batch::Computed(sequences.into(), vec![0; 8])).unwrap();
        let records = || index.metadata().unwrap().len() / 64;
        let send = std::cell::RefCell::new(Some(send));
        write(&mut filling, &[receive], (Duration::ZERO, &|_| true), |_| {
            assert_eq!(records(), 2);
            drop(send.borrow_mut().take());
        })
        .unwrap();
        assert!(send.borrow().is_none());
    }
}
