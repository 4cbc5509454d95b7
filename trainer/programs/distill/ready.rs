//! A run on its device: sealed, its weights sent, and where it continues.

use std::sync::Arc;

use itertools::Itertools;
use precast_fatbins::Digest;
use precast_plan::MemoryTable;
use precast_runtime::Placement;
use precast_system::progress::{Progress, Unit};
use precast_system::terminal::visible;
use precast_system::{say, tee};

use super::begin;
use super::certify::Certified;
use super::hung;
use super::inputs::batches;
use super::open::{Opened, UnderWay};
use super::teacher_score;
use super::wait::unless_stopped;
use crate::base::notes;
use crate::base::phase::Promise;
use crate::base::startup_times::Startup;
use crate::base::stop::Stop;
use crate::device;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::inputs::checkpoint::{Checkpoint, check_space};
use crate::inputs::data::{Batches, Chunk, Corpus, DataError, Step, Streams, Summaries};
use crate::options::{Final, OutputOptions, RunConfig};
use crate::ranks::Ranks;
use crate::run::checkpoint;
use crate::run::covered;
use crate::run::disk_space::DiskSpace;
use crate::run::failure::Failure;
use crate::run::gpu::Gpu;
use crate::run::out::Out;
use crate::run::record::{Known, TeacherCertificate, TeacherRecord, TeacherScore};
use crate::run::still;

/// A run whose next step may be taken.
pub(super) struct Ready {
    pub opened: Opened,
    /// The configuration, with the formats of weights as they are and not as they were asked for: a run that continues
    /// says what has changed.
    pub recorded: RunConfig,
    pub session: Session,
    pub gpu: Gpu,
    /// The steps that come next.
    pub batches: Batches,
    /// Digest of the tokens of the steps that are done.
    pub tokens: Digest,
    /// Knowledge of each teacher, by its number, as it is to stand in `run.json`.
    pub teachers: Vec<TeacherRecord>,
}

/// Opens the device, sends the weights, and compares what only then is known with other ranks' and with the run so far.
pub(super) fn ready(
    (mut opened, under_way): (Opened, UnderWay),
    placement: Placement,
    startup: &mut Startup,
    stop: &Stop,
    ranks: &Ranks,
) -> Result<Ready, Failure> {
    let UnderWay { cublas, teachers: known, seen } = under_way;
    let Opened { config, out, resumed, begin, models, corpus, summaries, digests, identity, .. } = &mut opened;
    let driver = device::open_rank(&config.target, cublas, ranks)?;
    if driver.device().has_one_memory() {
        digests.forget_pages();
    }
    startup.end("device");
    let gauge = driver.gauge();
    let (mut session, ()) = Session::open(driver, models, config, placement, startup, |_| ())?;
    hung::watch(&mut session, out.as_ref(), ranks);
    session.watch.checkpoint(begin.step);
    known.check_room(config, &session)?;
    models.caches.iter().flatten().for_each(|cache| covered::note_arch(cache, &session.plan.plan));
    let recorded = RunConfig {
        student_format: models.adapter.as_ref().map(|_| models.shapes().student_format(config)),
        teacher_format: config.teacher_format.map(|_| session.teacher_format),
        ..config.clone()
    };
    let gpu = Gpu::open(gauge);
    let heading = session.heading().with("gpu", gpu.heading());
    if out.is_none() && gpu.heading().is_some() {
        // Another rank prints what is the same for all.
        tee::line(&visible(&heading.to_string()));
    }
    let heading = heading
        .models(config, models)
        .data(corpus, summaries.as_ref().map(Summaries::total))
        .with("ship", config.file().map(|file| file.described(models.models.student.config())))
        .with("loss", config.objective.formula());
    let heading = heading.with("steps", Some(config.passes(summaries.as_ref()).to_string()));
    if let Some(out) = out {
        say!("{heading}\n\n{}", MemoryTable::of(&session.plan.plan));
        let dense = || config.result_dtype().bytes() * session.plan.student.weights.parameters.count();
        let result_bytes = models.adapter.as_ref().map_or_else(dense, |adapter| 4 * adapter.layout.count());
        // Better refused now than after hours.
        let needed = disk_space(config, &session, result_bytes, out, begin.step)?.needed();
        check_space(out.path(), "the run (checkpoints and what it trains)", needed)?;
    }
    let certificates = upload(&mut session, models, (known, config), || first_step(corpus, config), stop)?;
    models.models.iter().filter_map(|(role, model)| still::note(&config.name_of(role), model)).for_each(notes::note);
    config.completions.and_then(|_| models.models.student.note_of_endless()).iter().for_each(notes::note);
    config.int8_note(session.plan.plan.arch).iter().for_each(notes::note);
    startup.end("upload");
    let (mut batches, tokens) = unless_stopped(stop, "reading data", || seen.join().expect("reading does not panic"))??;
    if ranks.count() > 1 || resumed.is_some() {
        identity.models(&digests.weights.wait(stop)?, config);
    }
    begin::check_devices(&session, identity, ranks)?;
    if let Some(resumed) = resumed {
        resumed.compare(identity)?;
        resumed.check_tokens(tokens)?;
    }
    let scores = {
        let before = resumed.as_ref().map(|resumed| &resumed.record).or(begin.record.as_ref());
        let first = || match begin.step {
            0 => first_of_each(&mut batches, config).map(|step| scored(step, config)),
            _ => first_step(corpus, config),
        };
        teacher_score::of_run(config, before, &mut session, first, models.student().config().vocab)?
    };
    if scores.iter().any(Option::is_some) {
        startup.end("teacher");
    }
    let teachers = records(certificates, scores, models);
    let saved = resumed.as_ref().map(|resumed| &resumed.saved).or(begin.saved.as_ref());
    if let Some(saved) = saved {
        saved.restore(&mut session)?;
        startup.end("checkpoint");
    }
    let has_checkpoints = config.output.checkpoint_every > 0 || begin.step > 0;
    stop.begin(begin.step, Promise { steps: config.steps(), result: config.trained(), has_checkpoints })?;
    Ok(Ready { opened, recorded, session, gpu, batches, tokens, teachers })
}

/// Returns the records of teachers, by their numbers.
fn records(
    certificates: Vec<Option<TeacherCertificate>>,
    scores: Vec<Option<TeacherScore>>,
    models: &RunModels<Checkpoint>,
) -> Vec<TeacherRecord> {
    let caches = models.caches.iter().map(|cache| cache.as_ref().map(|cache| Known::Known(cache.record())));
    let of_teachers = certificates.into_iter().zip(scores).zip(caches);
    let record = |((certificate, score), cache): ((Option<TeacherCertificate>, _), _)| TeacherRecord {
        score,
        certificate: certificate.map(Known::Known),
        cache,
    };
    of_teachers.map(record).collect()
}

/// Returns the disk space for what the run is going to write.
fn disk_space(
    config: &RunConfig,
    session: &Session,
    student_bytes: u64,
    out: &Out,
    done: u64,
) -> Result<DiskSpace, Failure> {
    let OutputOptions { checkpoint_every: every, eval_every, r#final, .. } = config.output;
    let steps = config.steps();
    let written = |every| steps / every - done / every + u64::from(!steps.is_multiple_of(every));
    // Each evaluation may be the best so far.
    let of_best = if r#final.has_best() && eval_every > 0 { written(eval_every) } else { 0 };
    let results = if r#final == Final::Both { 2 } else { 1 };
    Ok(DiskSpace {
        checkpoint_bytes: checkpoint::bytes(session.plan.shards.elems(), config.arithmetic.moments),
        student_bytes: results * student_bytes,
        // The best one may be another than the latest.
        keep: config.output.keep.saturating_add(u64::from(!config.eval_data.is_empty())),
        kept: checkpoint::steps(out.path())?.len() as u64,
        to_come: if every > 0 { written(every) } else { 0 } + of_best,
    })
}

/// Returns the data that teachers are scored on: those of steps, of an on-policy run all tokens of their prompts.
fn scored(step: Step, config: &RunConfig) -> Step {
    if config.on_policy.is_none() {
        return step;
    }
    let prompt = |row: &Arc<Chunk>| Arc::new(Chunk { teacher: row.teacher, ..Chunk::plain(row.prompt()) });
    // A micro-batch has one teacher.
    Step::new(step.rows.iter().map(prompt).sorted_by_key(|row| row.teacher).collect(), config.places())
}

/// Micro-batches among which each of several teachers looks for one of its own.
const MOST_MICROS: u32 = 1024;

/// Returns the micro-batches of the first step, and those behind it until each teacher has one, which stay the next.
fn first_of_each(batches: &mut Batches, config: &RunConfig) -> Result<Step, DataError> {
    let mut micros = config.data_micros();
    loop {
        let step = batches.peek(micros)?;
        let found = step.rows.iter().map(|row| row.teacher).unique().count();
        if found >= config.teachers.len() || micros >= MOST_MICROS {
            return Ok(step);
        }
        micros *= 2;
    }
}

/// The first step of a run, wherever it continues.
fn first_step(corpus: &Arc<Corpus>, config: &RunConfig) -> Result<Step, DataError> {
    let step = first_of_each(&mut batches(Streams::start(Arc::clone(corpus)), config), config)?;
    Ok(scored(step, config))
}

/// Sends the weights; returns what is known of teachers that are not exact.
fn upload(
    session: &mut Session,
    models: &RunModels<Checkpoint>,
    (teachers, config): (Certified, &RunConfig),
    first_step: impl FnOnce() -> Result<Step, DataError>,
    stop: &Stop,
) -> Result<Vec<Option<TeacherCertificate>>, Failure> {
    let total = session.upload_bytes(models);
    let shown = Progress::start("weights", Unit::Bytes);
    let progress = |sent| {
        shown.add(sent, total);
        stop.check()
    };
    if !teachers.measures() {
        session.upload(models, progress)?;
        return Ok(teachers.known());
    }
    let batches = teachers.batches(&first_step()?, config)?;
    let columns = session.certify(models, &batches, progress)?;
    let known = shown.suspend(|| teachers.judge(config, &batches, &columns))?;
    session.upload_student(models, progress)?;
    Ok(known)
}
