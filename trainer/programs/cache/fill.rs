//! Fills a cache, as one of the ranks that do.

use std::thread;
use std::time::{Duration, Instant};

use precast_fatbins::Digest;
use precast_plan::{MemoryTable, Parameter, Precision};
use precast_system::count;

use super::directory::{check_out, filled, write_head};
use super::engine::Opening;
use super::filler::{self, Deal};
use super::outcome::DeviceForecast;
use super::peers::Peers;
use super::sequences::{self, Contents};
use super::{CacheOutcome, CacheRequest, Forecast};
use crate::base::notes::{self, note};
use crate::base::roles::Models;
use crate::base::stop::{Stop, end_at_signal_after};
use crate::device;
use crate::inputs::checkpoint::{self, Checkpoint, Weights};
use crate::inputs::pair;
use crate::inputs::teacher_cache::{Compact, FORMAT, FilledBy, Filling, Made, head};
use crate::programs::distill::read;
use crate::ranks::{Place, RankError, Ranks};
use crate::run::certificate;
use crate::run::failure::Failure;
use crate::run::identity::Data;
use crate::run::out::{refuse_inputs, refuse_within};
use crate::run::rank_end;
use crate::run::record::binary_digest;
use crate::run::signing::SigningKey;

/// Time that ranks besides the first let pass at a signal, which that one answers for all.
const AFTER_FIRST: Duration = Duration::from_millis(100);

/// Fills the cache in `--out` as one of the ranks that do, or continues to; of a dry run, says what that takes and
/// writes nothing. Rank 0 has the result.
///
/// # Errors
/// [`Failure`]. What was computed before it stays, and the same command continues behind it, on any number of GPUs.
pub fn fill(request: &CacheRequest, place: &Place) -> Result<Option<CacheOutcome>, Failure> {
    if place.rank > 0 {
        notes::silence();
    }
    let ranks = match request.dry_run {
        true => Ranks::of(place),
        false => Ranks::rendezvous(place.clone(), &Stop::default())?,
    };
    let at_signal = ranks.clone();
    end_at_signal_after(move |signal| {
        if !at_signal.is_first() {
            thread::sleep(AFTER_FIRST);
        }
        at_signal.fail(signal.exit_code(), format!("stopped by {}", signal.name()));
    })?;
    rank_end::ended(&ranks, fill_share(request, &ranks))
}

/// Returns the number that rank 0 has.
fn of_first(ranks: &Ranks, own: u64) -> Result<u64, RankError> {
    let bytes = ranks.broadcast(&own.to_le_bytes())?;
    let bytes =
        bytes.first_chunk().ok_or_else(|| RankError::Io("rank 0 says something else than a number".to_owned()))?;
    Ok(u64::from_le_bytes(*bytes))
}

/// Compares what ranks compute.
fn check_alike(request: &CacheRequest, made: &Made, ranks: &Ranks) -> Result<(), RankError> {
    let program = binary_digest().map_or_else(|| "unknown".to_owned(), |digest| digest.to_string());
    let own = [("program", program), ("batch-size", request.shape.batch_size.to_string())];
    let own = own.into_iter().chain(made.values()).map(|(name, value)| (name.to_owned(), value));
    ranks.check_alike(&own.collect::<Vec<_>>())
}

fn fill_share(request: &CacheRequest, ranks: &Ranks) -> Result<Option<CacheOutcome>, Failure> {
    let asked = request.data_request()?;
    let inputs = request.inputs();
    refuse_inputs(&request.out, &inputs)?;
    refuse_within(&request.out, &inputs)?;
    let key = request.key.clone().filter(|_| ranks.is_first()).map(SigningKey::open).transpose()?;
    let sign = |bytes: &[u8]| key.as_ref().map(|key| key.sign(bytes)).transpose();
    let teacher = &Checkpoint::open(request.teacher())?;
    let student = &Checkpoint::open(request.student())?;
    let models = Models { teachers: vec![teacher], student };
    let data = read(&asked, models, Some(&pair::check(teacher, student)?), None)?;
    let contents = Contents::of(&data, request.shape.seq_len)?;
    let driver = device::open_own(&request.target, &ranks.place)?;
    let arch = device::rows(driver.device())?.launches;
    let compact = request.compact(student.config().vocab);
    let made = made(request, (teacher, compact), &data, arch.argument().to_owned())?;
    let disk_bytes = contents.bytes(made.row_bytes()) + head_bytes(&head_of(teacher, compact), request.precision);
    check_alike(request, &made, ranks)?;
    let there = if ranks.is_first() { check_out(request, &made, disk_bytes)? } else { 0 };
    let there = of_first(ranks, there)?;
    let opening = Opening { driver, request, teacher, made: &made, ranks: ranks.count() };
    let planned = opening.plan(contents.behind(there))?;
    planned.note().into_iter().for_each(note);
    if request.dry_run {
        let Contents { sequences, rows, .. } = contents;
        let device = Some(DeviceForecast { gpus: ranks.count(), memory: MemoryTable::of(planned.plan()) });
        return Ok(Some(CacheOutcome::Forecast(Box::new(Forecast { sequences, rows, disk_bytes, device }))));
    }
    let settled = if ranks.is_first() { Filling::settle(&request.out, &made, sign)? } else { None };
    if of_first(ranks, settled.is_some().into())? == 1 {
        return Ok(settled.map(|manifest| {
            note("all of it is there already: a filling was stopped at its very end");
            let continued = manifest.sequences;
            filled(manifest, continued, None)
        }));
    }
    let mut engine = opening.open(planned)?;
    let deal = &Deal { peers: &Peers::connect(ranks)?, places: request.places() };
    if !ranks.is_first() {
        let there = of_first(ranks, 0)?;
        filler::help(&mut *engine, &contents, &data, (deal, there))?;
        // Until all of it is written.
        ranks.barrier()?;
        return Ok(None);
    }
    let mut filling = Filling::open(&request.out, &made)?;
    write_head(&filling, teacher, &head_of(teacher, compact), request.precision)?;
    let continued = filling.sequences();
    if continued > 0 {
        note(format_args!("{} are there already: the filling continues", count(continued as usize, "sequence")));
    }
    of_first(ranks, continued)?;
    let started = Instant::now();
    filler::fill(&mut *engine, &mut filling, &contents, &data, deal)?;
    let seconds = started.elapsed().as_secs_f64();
    let head_sha256 = checkpoint::digest(&[head(&request.out)])?;
    let manifest = filling.finish_signed(head_sha256, sign)?;
    ranks.barrier()?;
    let computed: usize = contents.behind(continued).iter().sum();
    let tokens_per_s = (computed > 0).then(|| computed as f64 / seconds);
    Ok(Some(filled(manifest, continued, tokens_per_s)))
}

/// Describes what the cache is made from.
fn made(
    request: &CacheRequest,
    (teacher, compact): (&Checkpoint, Option<Compact>),
    data: &Data,
    arch: String,
) -> Result<Made, Failure> {
    let config = teacher.config();
    Ok(Made {
        format: FORMAT,
        teacher_sha256: checkpoint::digest(&teacher.weight_files())?,
        teacher_config_sha256: Digest::of(teacher.json.to_string().as_bytes()),
        teacher_stored: teacher.stored(),
        precision: request.precision,
        hidden: config.hidden,
        vocab: config.vocab,
        compact,
        seq_len: request.shape.seq_len,
        filled_by: Some(FilledBy {
            kernels_sha256: certificate::hidden_kernels_sha256(config, request.precision, compact.map(Compact::top))?,
            arch,
        }),
        data_sha256: data.signature(data.streams.corpus.digest()?),
        held_out_sha256: data.held_out.as_ref().map(|held_out| sequences::digest(held_out, request.shape.seq_len)),
    })
}

/// Returns the weights that a run needs of a teacher besides the rows of a cache: those of the head, where rows are
/// hidden states.
fn head_of(teacher: &Checkpoint, compact: Option<Compact>) -> Vec<Parameter> {
    if compact.is_some() { Vec::new() } else { vec![Parameter::head(teacher.config())] }
}

fn head_bytes(head: &[Parameter], precision: Precision) -> u64 {
    head.iter().map(|parameter| parameter.elems() * precision.dtype().bytes()).sum()
}
