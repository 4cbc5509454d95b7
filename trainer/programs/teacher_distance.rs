//! Measuring how far a student is from a cached teacher, on data that the cache holds: the student is computed, and of
//! the teacher its head alone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use precast_fatbins::Digest;
use precast_plan::{ComparisonPlan, Gemm, Precision, Side, Student};
use serde::Serialize;

use crate::base::notes::note;
use crate::base::roles::Models;
use crate::device::DeviceError;
use crate::device::frozen::{Forward, FrozenRequest, Opened};
use crate::device::run_models::open_head;
use crate::device::seal::SealedDevice;
use crate::device::session::{HiddenStates, read_columns};
use crate::device::shapes::open_trusted;
use crate::device::upload::Upload;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{Chunking, Corpus, Dataset, Files, Packing, Places};
use crate::inputs::pair;
use crate::inputs::teacher_cache::{Made, TeacherCache};
use crate::options::WeightFormat;
use crate::programs::evaluate::{Evaluation, batches, ids_sha256};
use crate::run::certificate::{Measured, Tally};
use crate::run::covered;
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;
use crate::run::perplexity::Score;

/// Distance of a student from its teacher, on some tokens.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TeacherDistance {
    /// Quality of the student's predictions.
    #[serde(flatten)]
    pub score: Score,
    /// Mean KL of the teacher's predictions to the student's, nats a token.
    pub kl_mean: f64,
    /// The largest of a token.
    pub kl_max: f64,
    /// Share of tokens of which both choose the same first.
    pub agreement: f64,
    pub teacher_perplexity: f64,
    /// Digest of the cache.
    pub cache_sha256: Digest,
    /// Digest of the token ids.
    pub ids_sha256: Digest,
}

impl fmt::Display for TeacherDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { score, kl_mean, kl_max, agreement, teacher_perplexity, .. } = self;
        write!(
            f,
            "KL {kl_mean:.5} nats a token from the teacher, at most {kl_max:.4}; the same first choice of {:.2} % of \
            {} tokens; \
             perplexity {:.4}, of the teacher {teacher_perplexity:.4}",
            100.0 * agreement,
            score.tokens,
            score.perplexity
        )
    }
}

/// Measures a student on the data of a request, read as runs read what they hold out.
///
/// # Errors
/// [`Failure`]. `progress` is told how many of how many batches are done.
pub fn distance(
    request: &Evaluation,
    cache: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TeacherDistance, Failure> {
    let cache = Arc::new(open(request, cache)?);
    let Made { precision, seq_len, .. } = cache.manifest().made;
    let forward = &Forward { precision: Some(precision), teacher: Some(cache.teacher()), ..request.forward.clone() };
    let teacher = open_head(&cache.teacher(), &cache)?;
    let opened = forward.read()?;
    let dataset = read(request, Models { teachers: vec![&teacher], student: &opened.model }, seq_len)?;
    if let Some(number) = covered::first_lacking((&cache, 0), &dataset.chunks) {
        return Err(cache.lacks_measured(number, &request.data).into());
    }
    covered::check_kernels(&cache, precision)?;

    let batch = request.batch_size.min(dataset.chunks.len() as u32);
    let (plan, mut sealed) = seal(forward, &opened, (&request.data, &teacher), (batch, seq_len))?;
    covered::note_arch(&cache, &plan.plan);
    let Side::Other { reference, compared, .. } = plan.side else { unreachable!("a plan of a student") };
    let (mut hidden, mut tally) = (HiddenStates::of(&cache), Tally::default());
    let batches = batches(&dataset.chunks, batch, seq_len);
    let all = batches.len();
    for (index, micro) in batches.enumerate() {
        sealed.write(reference, &hidden.of_batch(&micro)?[0])?;
        sealed.score([plan.ids, plan.targets], plan.sequences, &micro)?;
        tally.add(&micro.targets, &read_columns(&mut sealed, compared)?);
        progress(index + 1, all);
    }
    let measured = tally.measured();
    if !measured.is_finite() {
        return Err(broken(measured, &forward.model, &cache).into());
    }
    let Measured { kl_mean, kl_max, agreement, perplexity, exact_perplexity, tokens } = measured;
    let (nll, ids_sha256) = (perplexity.ln() * tokens as f64, ids_sha256(&dataset));
    let score = Score::new(nll, tokens, opened.model.config().vocab, ids_sha256);
    let (teacher_perplexity, cache_sha256) = (exact_perplexity, cache.sha256());
    Ok(TeacherDistance { score, kl_mean, kl_max, agreement, teacher_perplexity, cache_sha256, ids_sha256 })
}

/// Names the side whose predictions are no numbers.
fn broken(measured: Measured, model: &Path, cache: &TeacherCache) -> RunFault {
    let (path, tokens) = (cache.path().display(), measured.tokens);
    RunFault(if measured.exact_perplexity.is_finite() {
        format!(
            "predictions of {} are no numbers on {tokens} tokens: its weights are broken, or its activations \
            overflow. Give \
             another model",
            model.display()
        )
    } else {
        format!(
            "predictions of the teacher in {path} are no numbers on {tokens} tokens: the teacher is broken, or its \
            activations \
             overflow. Make the cache again, in --precision fp32 or of another teacher"
        )
    })
}

/// Opens a cache of hidden states, of the precision and length that are asked for.
fn open(request: &Evaluation, cache: &Path) -> Result<TeacherCache, Failure> {
    let forward = &request.forward;
    if forward.gemm == Gemm::Cublas {
        return Err(Failure::usage(
            "--gemm cublas: a cache is filled by the bundle's kernels, and a distance is between models alone: leave \
            it out",
        ));
    }
    let cache = open_trusted(cache, &forward.target.kernels)?;
    let Made { precision, seq_len, compact, .. } = cache.manifest().made;
    if let Some(compact) = compact {
        return Err(Failure::usage(format!(
            "{} keeps {compact}, and a distance is over all tokens: make a cache of these data without --keep-logits: \
             `precast cache --teacher TEACHER --student STUDENT --data DATA --seq-len {seq_len} --out CACHE`",
            cache.path().display()
        )));
    }
    if forward.format == WeightFormat::Int8 && precision == Precision::Fp32 {
        return Err(Failure::usage(format!(
            "--format int8 is computed in bf16, and {} was made with --precision fp32: leave --format int8 out, or \
            make a cache in bf16: \
             `precast cache --teacher TEACHER --student STUDENT --data DATA --seq-len {seq_len} --precision bf16 \
             --out CACHE`",
            cache.path().display()
        )));
    }
    cache.check_shape(forward.precision.unwrap_or(precision), request.seq_len.unwrap_or(seq_len))?;
    cache.check_head()?;
    Ok(cache)
}

/// Reads data into sequences of so many tokens.
fn read(request: &Evaluation, models: Models<&Checkpoint>, seq_len: u32) -> Result<Dataset, Failure> {
    let pair = models.teachers.first().map(|teacher| pair::check(teacher, models.student)).transpose()?;
    pair.iter().flat_map(|pair| &pair.notes).for_each(note);
    let files = Files::open(&request.data, request.text.data_field.as_deref())?;
    let reader = pair::reader(&models, pair.as_ref(), request.text.chat.variables(), files.has_chat())?;
    let places = Places::new(request.batch_size, seq_len, Packing::Rows);
    let dataset = Dataset::of(&Corpus::new(files, seq_len, Chunking::Stream, reader)?.filling(places))?;
    dataset.notes.iter().for_each(note);
    Ok(dataset)
}

/// Seals a student beside the head of its teacher, with the weights of both on the device.
fn seal(
    forward: &Forward,
    opened: &Opened,
    (data, teacher): (&[PathBuf], &Checkpoint),
    shape: (u32, u32),
) -> Result<(ComparisonPlan, SealedDevice), DeviceError> {
    let lower = |student: Student<'_>, _: u32, arch| {
        ComparisonPlan::student(student, teacher.config(), shape, forward.precision(), arch)
    };
    let what = |_| "this evaluation does not fit: give a smaller --batch-size".to_owned();
    let (plan, mut sealed) =
        forward.open_plan(opened, data, FrozenRequest { lower: &lower, slots: None, what: &what }, |_| ())?;
    let Side::Other { head: Some(head), .. } = &plan.side else {
        unreachable!("a plan of a student has its teacher's head")
    };
    let head = [(head.parameter.clone(), head.tensor())];
    Upload::new(&mut sealed, teacher, &mut |_| Ok(())).parameters(&head)?;
    Ok((plan, sealed))
}
