//! `precast cache --from`: a compact cache of the likeliest tokens that others have computed.

use std::collections::HashSet;

use precast_fatbins::Digest;
use precast_plan::{Precision, TopTokens};
use precast_system::count;
use precast_system::progress::{Progress, Unit};

use super::directory::{check_out, filled, write_head};
use super::filler::SYNC_BYTES;
use super::{CacheOutcome, CacheRequest, Forecast};
use crate::base::notes::note;
use crate::base::roles::Models;
use crate::base::stop::end_at_signal;
use crate::inputs::checkpoint::{self, Checkpoint};
use crate::inputs::data::Corpus;
use crate::inputs::pair;
use crate::inputs::teacher_cache::{Compact, Entry, FORMAT, Filling, Key, Made, RECORD_BYTES, head};
use crate::programs::distill::read;
use crate::run::failure::Failure;
use crate::run::identity::Data;
use crate::run::out::{refuse_inputs, refuse_within};
use crate::run::signing::SigningKey;

/// Makes the cache in `--out`, or continues to; of a dry run, says what that takes. No device computes anything.
///
/// # Errors
/// [`Failure`]. Nothing is written before all rows have been read, and what is written before one stays.
pub fn convert(request: &CacheRequest) -> Result<CacheOutcome, Failure> {
    end_at_signal()?;
    let asked = request.data_request()?;
    let inputs = request.inputs();
    refuse_inputs(&request.out, &inputs)?;
    refuse_within(&request.out, &inputs)?;
    let key = request.key.clone().map(SigningKey::open).transpose()?;
    let sign = |bytes: &[u8]| key.as_ref().map(|key| key.sign(bytes)).transpose();
    let student = &Checkpoint::open(request.student())?;
    if let Some(directory) = &request.tokenizer {
        pair::check_tokenizer(directory, student)?;
    }
    let data = read(&asked, Models { teacher: None, student }, None, None)?;
    let contents = Contents::of(&data.streams.corpus, request.shape.seq_len)?;
    let compact = compact(request, &contents, student.config().vocab);
    let made = made(request, (student, compact), &data)?;
    let (sequences, rows) = (contents.keys.len() as u64, contents.rows);
    let disk_bytes = rows * made.row_bytes() + sequences * RECORD_BYTES as u64;
    check_out(request, &made, disk_bytes)?;
    if request.dry_run {
        return Ok(CacheOutcome::Forecast(Box::new(Forecast { sequences, rows, disk_bytes, device: None })));
    }
    if let Some(manifest) = Filling::settle(&request.out, &made, sign)? {
        let continued = manifest.sequences;
        return Ok(filled(manifest, continued, None));
    }
    let mut filling = Filling::open(&request.out, &made)?;
    write_head(&filling, student, &[], made.precision)?;
    let continued = filling.sequences();
    fill(&mut filling, &data.streams.corpus, compact, sequences)?;
    let head_sha256 = checkpoint::digest(&[head(&request.out)])?;
    Ok(filled(filling.finish_signed(head_sha256, sign)?, continued, None))
}

/// Counts of the distinct sequences of rows.
struct Contents {
    keys: HashSet<Key>,
    /// Positions of them that count.
    rows: u64,
    /// Tokens of a position that counts, at most.
    most: usize,
}

impl Contents {
    /// Reads all rows once: what is wrong with one is said before anything is written.
    fn of(corpus: &Corpus, seq_len: u32) -> Result<Self, Failure> {
        let mut contents = Self { keys: HashSet::new(), rows: 0, most: 0 };
        corpus.likely_rows(|row| {
            if contents.keys.insert(Key::of_chunk(&row.chunk, seq_len).0) {
                contents.rows += row.chunk.counted() as u64;
                contents.most = row.counted().map(<[_]>::len).fold(contents.most, usize::max);
            }
            Ok::<_, Failure>(())
        })?;
        Ok(contents)
    }
}

/// Chooses the form: as many tokens as a position has, at most as many as are asked for and as a cache can keep.
fn compact(request: &CacheRequest, contents: &Contents, student_vocab: u32) -> Compact {
    let (most, found) = (TopTokens::most(student_vocab), contents.most as u32);
    let keep_logits = found.min(most).min(request.keep_logits.unwrap_or(most));
    if keep_logits < found && request.keep_logits.is_none() {
        note(format_args!(
            "the {keep_logits} likeliest of up to {} a position are kept",
            count(found as usize, "token")
        ));
    }
    Compact { keep_logits, temperature: request.temperature, student_vocab }
}

/// Describes what the cache is made from. Its teacher is known by what the files say of it.
fn made(request: &CacheRequest, (student, compact): (&Checkpoint, Compact), data: &Data) -> Result<Made, Failure> {
    let files = data.streams.corpus.digest()?;
    Ok(Made {
        format: FORMAT,
        teacher_sha256: files,
        teacher_config_sha256: Digest::of(student.json.to_string().as_bytes()),
        teacher_stored: "log-probabilities of others".to_owned(),
        precision: Precision::Fp32,
        hidden: student.config().hidden,
        vocab: compact.student_vocab,
        compact: Some(compact),
        seq_len: request.shape.seq_len,
        filled_by: None,
        data_sha256: data.signature(files),
        held_out_sha256: None,
    })
}

/// Writes the sequences that are not there yet, each once.
fn fill(filling: &mut Filling, corpus: &Corpus, compact: Compact, all: u64) -> Result<(), Failure> {
    let progress = Progress::start("cache", Unit::Things("sequences"));
    progress.set(filling.sequences(), all);
    let (seq_len, mut unsynced) = (filling.made().seq_len, 0);
    corpus.likely_rows(|row| {
        let key = Key::of_chunk(&row.chunk, seq_len).0;
        if filling.has(&key) {
            return Ok(());
        }
        let rows = row.counted().flat_map(|known| compact.row(known.to_vec())).collect::<Vec<u8>>();
        unsynced += rows.len() as u64;
        filling.push(Entry::new(key, rows))?;
        if unsynced >= SYNC_BYTES {
            filling.sync()?;
            unsynced = 0;
        }
        progress.add(1, all);
        Ok::<_, Failure>(())
    })?;
    Ok(filling.check_lost(all)?)
}
