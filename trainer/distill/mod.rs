//! `precast distill` and `precast train`: the run from the first file to the last.

mod begin;
mod certify;
mod end;
mod held_out;
mod inputs;
mod progress;
mod result;
mod resume;
mod steps;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use indicatif::{ProgressBar, ProgressStyle};
use precast_fatbins::{Digest, say};
use precast_plan::{MemoryTable, Share};
use precast_runtime::Placement;
use serde_json::Value;

use crate::checkpoint::{Checkpoint, Weights as ModelWeights};
use crate::config::{GivenShare, RunConfig, Settings, Source};
use crate::data::{Batches, Corpus, DataError, MicroBatch, Order, Stream};
use crate::device;
use crate::error::Failure;
use crate::heading::Heading;
use crate::metrics::{METRICS, MetricsFile};
use crate::models::Role;
use crate::note;
use crate::ranks::{Place, Ranks};
use crate::record::RunRecord;
use crate::report::REPORT;
use crate::run::checkpoint;
use crate::run::disk_space::DiskSpace;
use crate::run::identity::Identity;
use crate::run::out::{Out, Start, refuse_inputs};
use crate::run::stop::{Stop, resume_command};
use crate::run::tokens;
use crate::session::Session;
use crate::sources::Sources;
use crate::startup::Startup;
use certify::Teacher;
use held_out::{HeldOut, Scores};
use inputs::{DataDigest, ModelDigests, open_models, read_data, same_files};
use progress::Progress;
use result::write_result;
use resume::Resumed;
use steps::{Run, Written};

/// How a run is done, besides its configuration.
#[derive(Clone, Debug)]
pub struct Mode {
    /// What becomes of a run that is in the output directory.
    pub start: Start,
    /// Where the number of steps is given; a run that continues takes as many as it was to where it is not.
    pub steps: Option<Source>,
    /// The file that options were read from.
    pub config_file: Option<PathBuf>,
    /// Give each buffer its own allocation, for memory checkers.
    pub placement: Placement,
    /// Which rank of a run this process is.
    pub place: Place,
    /// Which numbers of a step are given.
    pub share: GivenShare,
}

/// Trains a model, of a teacher if there is one; writes `metrics.jsonl`, `run.json`, `report.html` and `student/` or
/// `adapter/` to the output directory.
///
/// # Errors
/// [`Failure`]; metrics and checkpoints written before it stay. [`Failure::Stopped`] after a signal, with a checkpoint.
pub fn distill(config: &RunConfig, mode: &Mode, mut startup: Startup) -> Result<(), Failure> {
    let stop = Stop::install()?;
    if mode.place.rank > 0 {
        note::silence();
    }
    startup.end("arguments");
    let ranks = Ranks::meet(mode.place.clone(), &stop)?;
    let ended = run(config, mode, startup, &stop, &ranks);
    ranks.ended(ended)
}

/// The run of one rank. Rank 0 has the output directory; the others write what they have of checkpoints, and nothing else.
fn run(config: &RunConfig, mode: &Mode, mut startup: Startup, stop: &Stop, ranks: &Ranks) -> Result<(), Failure> {
    let mut config = config.clone();
    let inputs: Vec<&Path> = mode.config_file.as_deref().into_iter().collect();
    let inputs = [inputs, config.inputs()].concat();
    let mut out = match ranks.is_first() {
        true => Some(Out::claim(&config.out, mode.start, &inputs)?),
        false => None,
    };
    let resumed = match (&out, mode.start) {
        (Some(out), Start::Resume) => Some(Resumed::open(out, &mut config, mode.steps)?),
        _ => None,
    };
    let begin = begin::agree(&mut config, mode.share, resumed.as_ref(), out.as_ref(), ranks)?;
    if !config.eval_data.is_empty() && config.share != Share::ALONE {
        let message =
            "--eval-data is scored by one GPU without replicas: leave it out, and score checkpoints by `precast eval`";
        return Err(Failure::Usage(message.to_owned()));
    }
    let config = &config;
    let cublas = device::cublas(config.settings.gemm, config.settings.device)?;
    let models = open_models(config)?;
    let adapter = config.open_adapter(models.student.config())?;
    let mut digests = ModelDigests::start(&models);
    startup.end("models");
    let (models, adapter, data) = {
        let config = config.clone();
        stop.unless_stopped(move || {
            let data = read_data(&config, &models, adapter.as_ref());
            (models, adapter, data)
        })?
    };
    let data = data?;
    let corpus = Arc::clone(data.stream.corpus());
    let mut data_digest = DataDigest::start(&corpus);
    startup.end("data");
    let same_files = adapter.is_some() && same_files(&models, &mut digests, stop)?;
    let mut identity = Identity::new(config, &data, &models, adapter.as_ref());
    identity.cublas(cublas.map(|cublas| cublas.version()));
    if ranks.count() > 1 || resumed.is_some() {
        identity.data(data_digest.wait(stop)?);
    }
    if let Some(resumed) = &resumed {
        if resumed.compare(&identity).is_err() {
            digests.wait(stop)?;
            identity.models(digests.get()?);
            resumed.compare(&identity)?;
        }
        resumed.check_left(config)?;
    }
    begin::check_alike(config, &identity, &models, ranks)?;
    let before = resumed.as_ref().map(|resumed| &resumed.record).or(begin.record.as_ref());
    let known = Teacher::open(config, models.teacher.as_ref(), &mut digests, before, stop)?;
    let done = begin.step;
    let held_out = data.held_out.as_ref().map(HeldOut::new);
    let summary = data.stream.read_ahead()?;
    let seen = seen(data.stream, config, done);
    stop.check()?;

    let driver = device::open_rank(config.settings.device, &config.settings.kernels, cublas, ranks)?;
    if driver.device().has_one_memory() {
        digests.forget_pages();
    }
    startup.end("device");
    let teacher = models.teacher.as_ref().map(|model| model as &dyn ModelWeights);
    let sources = Sources { teacher, student: &models.student, adapter: adapter.as_ref(), same_files };
    let mut session = Session::open(driver, config, &sources, mode.placement, &mut startup)?;
    known.check_room(config, session.certifies())?;
    // As they are, not as they were asked for: a run that continues says what has changed.
    let teacher_format = teacher.map(|_| session.teacher_format());
    let student_format = adapter.as_ref().map(|_| sources.shapes().student_format(config).0);
    let config = &RunConfig { teacher_format, student_format, ..config.clone() };
    let of_model =
        |heading: Heading, (role, model): (Role, &Checkpoint)| heading.model(role.name(), model.path(), model);
    let heading = models.iter().fold(session.heading(), of_model);
    let heading = adapter.iter().fold(heading, Heading::adapter).data(&corpus, summary);
    if let Some(out) = &out {
        say!("{heading}\n\n{}", MemoryTable::of(&session.plan().plan));
        let result_bytes = result::bytes(config, &session, &models.student, adapter.as_ref());
        disk_space(config, &session, result_bytes, out, done)?.check(out.path())?;
    }
    let certificate = upload(&mut session, &sources, known, || first_batch(&corpus, config), stop)?;
    startup.end("upload");
    let (batches, tokens) = stop.unless_stopped(|| seen.join().expect("reading does not panic"))??;
    if ranks.count() > 1 || resumed.is_some() {
        digests.wait(stop)?;
        identity.models(digests.get()?);
    }
    begin::check_devices(&session, &identity, ranks)?;
    if let Some(resumed) = &resumed {
        resumed.compare(&identity)?;
        resumed.check_tokens(tokens)?;
    }
    let saved = resumed.as_ref().map(|resumed| &resumed.saved).or(begin.saved.as_ref());
    if let Some(saved) = saved {
        saved.restore(&mut session)?;
        startup.end("checkpoint");
    }
    stop.check()?;

    // Every check has passed: from here on the directory is this run's.
    let mut record = RunRecord::new(config, &session, &corpus);
    record.data(None, summary);
    certificate.into_iter().for_each(|certificate| record.teacher_certificate(certificate));
    let scores = Scores::of(resumed.iter().flat_map(|resumed| &resumed.metrics.records[..done as usize]));
    let metrics = match &mut out {
        None => None,
        Some(out) => {
            let changes = resumed.as_ref().map(|resumed| resumed.changes(config)).unwrap_or_default();
            record.part(done, resumed.as_ref().map(|resumed| &resumed.record), &changes);
            record.metrics(resumed.as_ref().map_or((0, Digest::of(b"")), |r| (done, r.saved.state.metrics_sha256)));
            out.begin(&mut record)?;
            // A kill may have come before the oldest ones went.
            let best = scores.best(&checkpoint::steps(out.path())?);
            checkpoint::prune(out, config.settings.keep, best.map(|(step, _)| step))?;
            Some(match &resumed {
                Some(resumed) => MetricsFile::resume(&resumed.metrics, done)?,
                None => MetricsFile::create(&out.path().join(METRICS))?,
            })
        }
    };
    let (micros, _) = config.share.micros(config.settings.grad_accum.into());
    let micros = (micros.end - micros.start) as u32;
    let floor_s = session.limit().map(|limit| limit.floor_seconds(&session.plan().plan, micros));
    let written = out.as_mut().zip(metrics);
    let written = written.map(|(out, metrics)| {
        let progress = Progress::new(config, done, floor_s);
        Written { out, metrics, record: &mut record, progress }
    });
    let mut steps = Run {
        config,
        session: &mut session,
        startup,
        skipped: 0,
        written,
        identity,
        digests: &mut digests,
        data_digest: &mut data_digest,
        batches,
        held_out,
        scores,
        tokens,
        stop,
        ranks,
    };
    let ran = steps.steps(done);
    let summary = steps.batches.stream().summary();
    let startup = steps.startup;
    // The bar goes.
    drop(steps.written);
    let Some(mut out) = out else {
        return match ran? {
            // Rank 0 says where, and writes what has been trained.
            Some((signal, _)) => Err(Failure::Stopped { signal, done: String::new() }),
            None => ranks.wait(),
        };
    };
    record.startup(&startup);
    // What ended the run says more than what could not be recorded of it.
    let recorded = digests
        .get()
        .map(|digests| record.models(digests))
        .and_then(|()| data_digest.get())
        .map(|digest| record.data(Some(digest), summary))
        .and_then(|()| out.record(&mut record));
    let ended = match ran.and_then(|stopped| recorded.map(|()| stopped)) {
        Err(failure) => Err(failure),
        Ok(Some((signal, step))) => {
            let steps = config.settings.steps;
            let done = format!("after step {step} of {steps}. Continue with:\n  {}", resume_command());
            Err(Failure::Stopped { signal, done })
        }
        Ok(None) => end::check(&out)
            .and_then(|()| write_result(config, &mut session, (&models, adapter.as_ref()), &mut out, &mut record))
            .and_then(|()| out.remove_replaced()),
    };
    // A rank that has failed is why.
    let ended = ended.map_err(|failure| ranks.cause(failure));
    end::record(config, &mut out, &mut record, &startup, ended)?;
    ranks.wait()?;
    let path = |name| config.out.join(name);
    let result = config.result();
    say!("{result}: {}\nreport:  {}", path(result).display(), path(REPORT).display());
    Ok(())
}

/// Makes every check of a run that needs no device: of its output directory, its models, its data and, to resume, its
/// checkpoint. Writes nothing.
///
/// # Errors
/// [`Failure`], as the run itself.
pub fn check(config: &RunConfig, mode: &Mode) -> Result<(), Failure> {
    let mut config = config.clone();
    let inputs: Vec<&Path> = mode.config_file.as_deref().into_iter().collect();
    let inputs = [inputs, config.inputs()].concat();
    refuse_inputs(&config.out, &inputs)?;
    let out = match mode.start == Start::Resume || config.out.exists() {
        true => Some(Out::claim(&config.out, mode.start, &inputs)?),
        false => None,
    };
    let resumed = match (&out, mode.start) {
        (Some(out), Start::Resume) => Some(Resumed::open(out, &mut config, mode.steps)?),
        _ => None,
    };
    let before = resumed.as_ref().map(|resumed| resumed.saved.state.replicas());
    config.take_share(&Ranks::of(&mode.place), mode.share, before)?;
    let models = open_models(&config)?;
    let adapter = config.open_adapter(models.student.config())?;
    let data = read_data(&config, &models, adapter.as_ref())?;
    let corpus = data.stream.corpus();
    let summary = match data.stream.read_ahead()? {
        Some(summary) => summary,
        None => corpus.pass(&mut |_| true)?,
    };
    say!("data     {}: {summary}", corpus.what());
    let mut digests = ModelDigests::start(&models);
    let before = resumed.as_ref().map(|resumed| &resumed.record);
    Teacher::open(&config, models.teacher.as_ref(), &mut digests, before, &Stop::install()?)?;
    let Some(resumed) = resumed else { return Ok(()) };
    let mut identity = Identity::new(&config, &data, &models, adapter.as_ref());
    let cublas = device::cublas(config.settings.gemm, config.settings.device)?;
    identity.cublas(cublas.map(|cublas| cublas.version()));
    identity.data(corpus.digest()?);
    identity.models(digests.get()?);
    resumed.compare(&identity)?;
    resumed.check_left(&config)
}

/// The steps of a run.
fn batches(stream: Stream, config: &RunConfig) -> Batches {
    let Settings { batch_size, seq_len, shuffle, shuffle_window, seed, .. } = config.settings;
    let order = if shuffle { Order::Shuffled { seed, window: shuffle_window } } else { Order::File };
    Batches::new(stream, batch_size, seq_len, order)
}

/// Starts to pass over the steps that are done, hashing their tokens.
fn seen(stream: Stream, config: &RunConfig, done: u64) -> JoinHandle<Result<(Batches, Digest), DataError>> {
    let (mut batches, accum) = (batches(stream, config), config.settings.grad_accum);
    std::thread::spawn(move || {
        let tokens = tokens::seen(&mut batches, done, accum)?;
        Ok((batches, tokens))
    })
}

/// What the run is going to write.
fn disk_space(
    config: &RunConfig,
    session: &Session,
    student_bytes: u64,
    out: &Out,
    done: u64,
) -> Result<DiskSpace, Failure> {
    let (steps, every) = (config.settings.steps, config.settings.checkpoint_every);
    Ok(DiskSpace {
        checkpoint_bytes: checkpoint::bytes(session.state_elems()),
        student_bytes,
        keep: match config.settings.checkpoint_every {
            0 => 0,
            // The best one may be another than the latest.
            _ => config.settings.keep.saturating_add(u64::from(!config.eval_data.is_empty())),
        },
        kept: match config.settings.checkpoint_every {
            0 => 0,
            _ => checkpoint::steps(out.path())?.len() as u64,
        },
        to_come: match every {
            0 => 0,
            _ => steps / every - done / every + u64::from(!steps.is_multiple_of(every)),
        },
    })
}

/// The first micro-batch of a run, wherever it continues.
fn first_batch(corpus: &Arc<Corpus>, config: &RunConfig) -> Result<MicroBatch, DataError> {
    let step = batches(Stream::start(Arc::clone(corpus)), config).step(1)?;
    Ok(step.micro_batch(0))
}

/// Sends the weights; returns what is known of a teacher that is not exact.
fn upload(
    session: &mut Session,
    sources: &Sources<'_>,
    teacher: Teacher,
    first_batch: impl FnOnce() -> Result<MicroBatch, DataError>,
    stop: &Stop,
) -> Result<Option<Value>, Failure> {
    let total = session.upload_bytes(sources);
    let style = ProgressStyle::with_template("weights {bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
    let bar = if note::is_silent() { ProgressBar::hidden() } else { ProgressBar::new(total) };
    let bar = bar.with_style(style.expect("a valid template"));
    let progress = |sent| {
        bar.inc(sent);
        stop.check()
    };
    let known = match teacher {
        Teacher::Unknown(measuring) => {
            let batch = first_batch()?;
            let judge = |columns| bar.suspend(|| Ok(measuring.judge(&batch, &columns)?));
            Some(session.certify(sources, &batch, progress, judge)?)
        }
        Teacher::Known(known) => {
            session.upload(sources, progress)?;
            Some(known)
        }
        Teacher::Exact => {
            session.upload(sources, progress)?;
            None
        }
    };
    bar.finish_and_clear();
    Ok(known)
}
