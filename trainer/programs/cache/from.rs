//! `precast cache --from`: a compact cache of the likeliest tokens that others have computed.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeMap, HashMap};

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
use crate::inputs::data::{Corpus, Lacking, LikelyDigest};
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
    let data = read(&asked, Models { teachers: Vec::new(), student }, None, None)?;
    let contents = Contents::of(&data.streams.corpus, request.shape.seq_len)?;
    contents.note_lacking();
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
struct Contents<'c> {
    keys: HashMap<Key, LikelyDigest<'c>>,
    /// Positions of them that count.
    rows: u64,
    /// Those by their number of tokens.
    positions: BTreeMap<u32, u64>,
    /// Positions that do not count.
    lacking: Lacking,
}

impl<'c> Contents<'c> {
    /// Reads all rows once: what is wrong with one is said before anything is written.
    fn of(corpus: &'c Corpus, seq_len: u32) -> Result<Self, Failure> {
        let (mut keys, mut rows, mut positions) = (HashMap::new(), 0, BTreeMap::new());
        let lacking = corpus.likely_rows(|row| {
            match keys.entry(Key::of_chunk(&row.chunk, seq_len).0) {
                Place::Occupied(first) => row.digest().check_equal(*first.get())?,
                Place::Vacant(place) => {
                    place.insert(row.digest());
                    rows += row.chunk.counted() as u64;
                    row.counted().for_each(|known| *positions.entry(known.len() as u32).or_default() += 1);
                }
            }
            Ok::<_, Failure>(())
        })?;
        Ok(Self { keys, rows, positions, lacking })
    }

    /// Returns the most frequent number of tokens of a position; the larger of two that are as frequent.
    fn usual(&self) -> u32 {
        self.positions.iter().max_by_key(|(_, positions)| **positions).map_or(0, |(tokens, _)| *tokens)
    }

    fn note_lacking(&self) {
        let Lacking { positions, of } = self.lacking;
        if positions > 0 {
            note(format_args!(
                "{positions} of {} do not count: no tokens are listed there, or in prompt_logprobs none of rank 1",
                count(of as usize, "position")
            ));
        }
    }

    /// Says which positions have more tokens than are kept where nobody has asked for so many.
    fn note_kept(&self, keep_logits: u32, is_asked: bool) {
        let most = self.positions.last_key_value().map_or(0, |(tokens, _)| *tokens);
        if keep_logits < most && !is_asked {
            let most = count(most as usize, "token");
            note(format_args!("the {keep_logits} likeliest of up to {most} a position are kept"));
        }
    }
}

/// Chooses the form: as many tokens as are asked for, or as a position usually has; at most as many as one has and as
/// a cache can keep.
fn compact(request: &CacheRequest, contents: &Contents<'_>, student_vocab: u32) -> Compact {
    let most = contents.positions.last_key_value().map_or(0, |(tokens, _)| *tokens);
    let wanted = request.keep_logits.unwrap_or_else(|| contents.usual());
    let keep_logits = wanted.min(most).min(TopTokens::most(student_vocab));
    contents.note_kept(keep_logits, request.keep_logits.is_some());
    Compact { keep_logits, temperature: request.temperature(), student_vocab }
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
