//! `precast distill` and `precast train`: the run from the first file to the last.

mod begin;
mod certify;
mod end;
mod held_out;
mod inputs;
mod open;
mod progress;
mod ready;
mod result;
mod resume;
mod steps;
mod teacher_score;
mod wait;

use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_runtime::Placement;
use precast_system::say;

use crate::base::note;
use crate::base::startup::Startup;
use crate::base::stop::{Stop, Stopped, resume_command};
use crate::device;
use crate::inputs::data::{Stream, Summary};
use crate::options::{GivenShare, RunConfig, Source};
use crate::programs::failure::Failure;
use crate::programs::rank_end;
use crate::ranks::{Place, Ranks};
use crate::run::checkpoint;
use crate::run::identity::Identity;
use crate::run::log;
use crate::run::metrics::{METRICS, MetricsFile};
use crate::run::out::{Out, Start, logs, refuse_inputs};
use crate::run::record::RunRecord;
use crate::run::report_file::REPORT;
use crate::run::still::{self, Still};
use certify::Teacher;
use held_out::{Scores, Since};
use inputs::{ModelDigests, open_models, read_data};
use open::{Opened, open};
use progress::Progress;
use ready::{Ready, ready};
use resume::Resumed;
use steps::{ExchangeWaits, Run, Written};

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

/// Trains a model, of a teacher if there is one; writes `metrics.jsonl`, `run.json`, `run.log`, `report.html` and `student/` or
/// `adapter/` to the output directory.
///
/// # Errors
/// [`Failure`]; metrics and checkpoints written before it stay. [`Failure::Stopped`] after a signal, with a checkpoint.
pub fn distill(config: &RunConfig, mode: &Mode, mut startup: Startup) -> Result<(), Failure> {
    let stop = Stop::install()?;
    log::hold();
    match mode.place.rank {
        0 => stop.answer()?,
        _ => note::silence(),
    }
    startup.end("arguments");
    let ranks = Ranks::rendezvous(mode.place.clone(), &stop)?;
    let ended = run(config, mode, startup, &stop, &ranks);
    rank_end::ended(&ranks, ended)
}

/// The run of one rank. Rank 0 has the output directory; the others write what they have of checkpoints, and nothing else.
fn run(config: &RunConfig, mode: &Mode, mut startup: Startup, stop: &Stop, ranks: &Ranks) -> Result<(), Failure> {
    let (mut opened, under_way) = open(config, mode, &mut startup, stop, ranks)?;
    let Ready { mut session, gpu, batches, tokens, certificate, teacher_score } =
        ready(&mut opened, under_way, mode.placement, &mut startup, stop, ranks)?;

    // Every check has passed: from here on the directory is this run's.
    let Opened { config, mut out, resumed, begin, models, adapter, corpus, held_out, summary, .. } = opened;
    let (mut digests, mut data_digest, done) = (opened.digests, opened.data_digest, begin.step);
    let config = &config;
    let mut record = RunRecord::new(config, &session, &corpus);
    record.data(None, summary);
    certificate.into_iter().for_each(|certificate| record.teacher_certificate(certificate));
    teacher_score.into_iter().for_each(|score| record.teacher_score(score));
    let before = resumed.as_ref().map_or(&[][..], Resumed::steps);
    let since = Since::of(resumed.as_ref().map(|resumed| &resumed.record), held_out.as_ref(), done);
    let scores = Scores::of(Since::compared(since, before));
    let still = Still::new(before, still::what_is_zero(&models.student, adapter.as_ref()));
    let metrics = match &mut out {
        Some(out) => {
            out.keep_logs(ranks.count());
            let metrics = take_over(config, out, &mut record, resumed.as_ref(), (since, &scores))?;
            out.open_log();
            Some(metrics)
        }
        None => None,
    };
    // The directory is this run's on every rank.
    ranks.barrier()?;
    if !ranks.is_first() {
        let (rank, logs) = (ranks.place().rank, begin.record.as_ref().map(logs).unwrap_or_default());
        log::open(&config.out, rank, logs.get(&log::name(rank)).copied());
    }
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
        gpu,
        startup,
        skipped: 0,
        still,
        written,
        identity: opened.identity,
        digests: &mut digests,
        data_digest: &mut data_digest,
        batches,
        held_out,
        scores,
        tokens,
        stop,
        ranks,
        waits: ExchangeWaits::default(),
    };
    let ran = steps.steps(done);
    let waited_ms = steps.waits.ms_a_step();
    let limits = steps.gpu.limits();
    let summary = of_pass(steps.batches.stream(), summary);
    let startup = steps.startup;
    // The bar goes.
    let metrics = steps.written.map(|written| written.metrics);
    let Some((mut out, mut metrics)) = out.zip(metrics) else {
        return match ran? {
            // Rank 0 says where, and writes what has been trained.
            Some((signal, _)) => Err(Stopped { signal, done: String::new() }.into()),
            None => Ok(ranks.barrier()?),
        };
    };
    record.startup(&startup);
    waited_ms.into_iter().for_each(|milliseconds| record.waited(milliseconds));
    record.gpu(limits);
    if let Some(text) = limits.and_then(|limits| limits.text()) {
        say!("gpu:     {text}");
    }
    // What ended the run says more than what could not be recorded of it.
    let recorded = digests
        .get()
        .map(|digests| record.models(digests))
        .and_then(|()| data_digest.get())
        .map(|digest| record.data(Some(digest), summary))
        .and_then(|()| Ok(out.record(&mut record)?));
    let ended = match ran.and_then(|stopped| recorded.map(|()| stopped)) {
        Err(failure) => Err(failure),
        Ok(Some((signal, step))) => {
            let steps = config.settings.steps;
            let done = format!("after step {step} of {steps}. Continue with:\n  {}", resume_command());
            Err(Stopped { signal, done }.into())
        }
        Ok(None) => {
            let models = (&models, adapter.as_ref());
            end::write(config, &mut session, models, (&mut out, &mut record), &metrics)
        }
    };
    // A rank that has failed is why.
    let ended = ended.map_err(|failure| rank_end::cause(ranks, failure));
    end::record(config, (&mut out, &mut record), &mut metrics, &startup, ended)?;
    ranks.barrier()?;
    say_where(config, waited_ms);
    Ok(())
}

/// What a pass over the data came to, once one has ended. What people should know of that is said here, unless it was known at the
/// start.
fn of_pass(stream: &Stream, known: Option<Summary>) -> Option<Summary> {
    let passed = stream.summary();
    let news = passed.filter(|_| known.is_none()).and_then(|summary| summary.note(stream.corpus().chunk()));
    news.into_iter().for_each(note::note);
    passed
}

/// Says where results are.
fn say_where(config: &RunConfig, waited_ms: Option<f64>) {
    let path = |name| config.out.join(name);
    let result = config.result();
    if let Some(milliseconds) = waited_ms {
        say!("ranks:   {milliseconds:.2} ms per step spent waiting for exchanges");
    }
    say!("{result}: {}\nreport:  {}", path(result).display(), path(REPORT).display());
}

/// Makes the output directory this run's, from its beginning or from its checkpoint on.
fn take_over(
    config: &RunConfig,
    out: &mut Out,
    record: &mut RunRecord,
    resumed: Option<&Resumed>,
    (since, scores): (Option<Since>, &Scores),
) -> Result<MetricsFile, Failure> {
    let (done, metrics_sha256) = match resumed {
        Some(Resumed { saved, .. }) => (saved.state.step, saved.state.metrics_sha256),
        None => (0, Digest::of(b"")),
    };
    let mut changes = resumed.map(|resumed| resumed.changes(config)).unwrap_or_default();
    since.into_iter().for_each(|since| record.held_out(since));
    let of_best = resumed.and_then(|resumed| Since::change(since, resumed.steps()));
    of_best.iter().for_each(note::note);
    changes.extend(of_best);
    record.best(scores.best(&checkpoint::steps(out.path())?));
    record.part(done, resumed.map(|resumed| &resumed.record), &changes);
    record.metrics((done, metrics_sha256));
    out.begin(record)?;
    // A kill may have come before the oldest ones went.
    let best = scores.best(&checkpoint::steps(out.path())?);
    checkpoint::prune(out, config.settings.keep, best.map(|(step, _)| step))?;
    Ok(match resumed {
        Some(resumed) => MetricsFile::resume(&resumed.metrics, done)?,
        None => MetricsFile::create(&out.path().join(METRICS))?,
    })
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
    config.take_share(Ranks::of(&mode.place).share(1), mode.share, before)?;
    let models = open_models(&config)?;
    let adapter = config.open_adapter(models.student.config())?;
    let data = read_data(&config, &models, adapter.as_ref())?;
    let corpus = data.stream.corpus();
    let summary = match data.stream.read_ahead()? {
        Some(summary) => summary,
        None => {
            let summary = corpus.pass(&mut |_| true)?;
            summary.note(corpus.chunk()).into_iter().for_each(note::note);
            summary
        }
    };
    say!("data     {}: {summary}", corpus.what());
    let mut digests = ModelDigests::start(&models);
    let before = resumed.as_ref().map(|resumed| &resumed.record);
    Teacher::open(&config, models.teacher.as_ref(), &mut digests, before, &Stop::default())?;
    let Some(resumed) = resumed else { return Ok(()) };
    let mut identity = Identity::new(&config, &data, &models, adapter.as_ref());
    let cublas = device::cublas(config.settings.gemm, config.settings.device)?;
    identity.cublas(cublas.map(|cublas| cublas.version()));
    identity.data(corpus.digest()?);
    identity.models(digests.get()?);
    resumed.compare(&identity)?;
    resumed.check_left(&config)
}
