//! `precast cache`: the last hidden states of a teacher on data, or its most likely tokens, computed once for all runs that learn
//! from it.

mod engine;
mod filler;
mod open;
mod request;
mod resident;
mod sequences;
mod sweep;

use std::fmt;
use std::time::Instant;

use precast_fatbins::Digest;
use precast_kernels::Format;
use precast_plan::{MemoryTable, Parameter, Precision, human_bytes};
use precast_system::count;
use precast_system::files::Existing;
use serde::Serialize;

use crate::base::notes::note;
use crate::device;
use crate::device::run_models::RunModels;
use crate::inputs::checkpoint::{self, Checkpoint, Scratch, Student, Weights, write_model};
use crate::inputs::teacher_cache::{Compact, FORMAT, Filling, Made, Manifest, head};
use crate::programs::distill::read_data;
use crate::programs::failure::Failure;
use crate::run::certificate;
use crate::run::identity::Data;
use crate::run::out::{refuse_inputs, refuse_within};
use engine::Opening;
pub use request::CacheRequest;
use sequences::Contents;

/// Result of a command.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum CacheOutcome {
    /// Returned by a dry run.
    Forecast(Box<Forecast>),
    Filled(Box<Filled>),
}

/// Disk and device memory that a filling takes.
#[derive(Clone, Debug, Serialize)]
pub struct Forecast {
    /// Sequences, each once.
    pub sequences: u64,
    /// Tokens of them that count.
    pub rows: u64,
    /// Bytes of the cache on disk.
    pub disk_bytes: u64,
    /// Device memory.
    pub memory: MemoryTable,
}

/// Result of a filling.
#[derive(Clone, Debug, Serialize)]
pub struct Filled {
    #[serde(flatten)]
    pub manifest: Manifest,
    /// Digest of the cache.
    pub sha256: Digest,
    /// Sequences that were there before.
    pub continued: u64,
    /// Tokens that this process has computed a second, those that do not count too; none where nothing was left.
    pub tokens_per_s: Option<f64>,
}

/// Fills the cache in `--out`, or continues to; of a dry run, says what that takes and writes nothing.
///
/// # Errors
/// [`Failure`]. What was computed before it stays, and the same command continues behind it.
pub fn fill(request: &CacheRequest) -> Result<CacheOutcome, Failure> {
    let config = request.run()?;
    config.sources()?;
    refuse_inputs(&request.out, &config.inputs())?;
    refuse_within(&request.out, &config.inputs())?;
    let models = RunModels::open(&config)?;
    let data = read_data(&config, &models)?;
    let teacher = models.models.teacher.as_ref().expect("a cache is of a teacher");
    let contents = Contents::of(&data, config.shape.seq_len)?;
    let driver = device::open_with(&request.target, None)?;
    let arch = device::rows(driver.device())?.launches;
    let compact = request.compact(models.models.student.config().vocab);
    let made = made(request, (teacher, compact), &data, arch.argument().to_owned())?;
    let disk_bytes = contents.bytes(made.row_bytes()) + head_bytes(&head_of(teacher, compact), request.precision);
    request.check_space(disk_bytes)?;
    let there = Filling::check(&request.out, &made)?;
    let opening = Opening { driver, request, teacher, made: &made };
    let planned = opening.plan(contents.sequences.saturating_sub(there))?;
    planned.note().into_iter().for_each(note);
    if request.dry_run {
        let Contents { sequences, rows, .. } = contents;
        let memory = MemoryTable::of(planned.plan());
        return Ok(CacheOutcome::Forecast(Box::new(Forecast { sequences, rows, disk_bytes, memory })));
    }
    if let Some(manifest) = Filling::settle(&request.out, &made)? {
        note("all of it is there already: a filling was stopped at its very end");
        let continued = manifest.sequences;
        return Ok(filled(manifest, continued, None));
    }
    let mut engine = opening.open(planned)?;
    let mut filling = Filling::open(&request.out, &made)?;
    write_head(&filling, teacher, &head_of(teacher, compact), request.precision)?;
    let continued = filling.sequences();
    if continued > 0 {
        note(format_args!("{} are there already: the filling continues", count(continued as usize, "sequence")));
    }
    let started = Instant::now();
    let computed = filler::fill(&mut *engine, &mut filling, &contents, &data)?;
    let seconds = started.elapsed().as_secs_f64();
    let head_sha256 = checkpoint::digest(&[head(&request.out)])?;
    let manifest = filling.finish(head_sha256)?;
    let tokens_per_s = (computed > 0).then(|| computed as f64 / seconds);
    Ok(filled(manifest, continued, tokens_per_s))
}

fn filled(manifest: Manifest, continued: u64, tokens_per_s: Option<f64>) -> CacheOutcome {
    CacheOutcome::Filled(Box::new(Filled { sha256: manifest.sha256(), manifest, continued, tokens_per_s }))
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
        kernels_sha256: certificate::hidden_kernels_sha256(config, request.precision, compact.map(Compact::top))?,
        arch,
        data_sha256: data.signature(data.streams.corpus.digest()?),
        held_out_sha256: data.held_out.as_ref().map(|held_out| sequences::digest(held_out, request.shape.seq_len)),
    })
}

/// Returns the weights that a run needs of a teacher besides the rows of a cache: those of the head, where rows are hidden states.
fn head_of(teacher: &Checkpoint, compact: Option<Compact>) -> Vec<Parameter> {
    if compact.is_some() { Vec::new() } else { vec![Parameter::head(teacher.config())] }
}

fn head_bytes(head: &[Parameter], precision: Precision) -> u64 {
    head.iter().map(|parameter| parameter.elems() * precision.dtype().bytes()).sum()
}

/// Writes the teacher's head, configuration and tokenizer, whatever a stopped filling has written of them.
fn write_head(
    filling: &Filling,
    teacher: &Checkpoint,
    head: &[Parameter],
    precision: Precision,
) -> Result<(), Failure> {
    let directory = filling.new_teacher()?;
    let dtype = precision.dtype();
    let written = Student {
        config: &teacher.json,
        parameters: head,
        dtype: checkpoint::stored(dtype),
        tokenizer_from: &[teacher],
    };
    let mut scratch = Scratch::default();
    Ok(write_model(&directory, Existing::Keep, &written, |parameter, write| {
        write(teacher.read(parameter, Format::Dense(dtype), &mut scratch)?)
    })?)
}

impl Filled {
    /// Bytes on disk of a token that counts.
    fn bytes_a_token(&self) -> f64 {
        self.manifest.hidden_bytes as f64 / self.manifest.rows as f64
    }
}

impl fmt::Display for CacheOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forecast(forecast) => forecast.fmt(f),
            Self::Filled(filled) => filled.fmt(f),
        }
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, rows, disk_bytes, memory } = self;
        let (sequences, tokens) = (count(*sequences as usize, "sequence"), count(*rows as usize, "token"));
        write!(
            f,
            "{sequences}, {tokens} that count, {} ({disk_bytes} bytes) on disk\n{memory}",
            human_bytes(*disk_bytes)
        )
    }
}

impl fmt::Display for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifest { sequences, rows, hidden_bytes, .. } = &self.manifest;
        let (sequences, tokens) = (count(*sequences as usize, "sequence"), count(*rows as usize, "token"));
        write!(f, "{sequences}, {tokens} that count, {} ({hidden_bytes} bytes", human_bytes(*hidden_bytes))?;
        write!(f, ", {:.0} a token), digest {}", self.bytes_a_token(), self.sha256)?;
        match self.tokens_per_s {
            Some(rate) => write!(f, "; {rate:.0} tokens/s"),
            None => Ok(()),
        }
    }
}
