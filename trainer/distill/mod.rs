//! `precast distill`: the run from the first file to the last.

mod end;
mod steps;
mod student;

use indicatif::{ProgressBar, ProgressStyle};
use precast_fatbins::say;
use precast_kernels::Dtype;
use precast_plan::MemoryTable;
use precast_runtime::Placement;

use crate::checkpoint::{self, Checkpoint};
use crate::config::RunConfig;
use crate::data::{Dataset, Packing, Reader};
use crate::device;
use crate::error::Failure;
use crate::metrics::MetricsFile;
use crate::pair;
use crate::record::RunRecord;
use crate::resume::{self, State};
use crate::session::Session;
use crate::startup::Startup;
use steps::Run;
use student::write_student;

/// How a run is done, besides its configuration.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Continue from the last checkpoint.
    pub resume: bool,
    /// Give each buffer its own allocation, for memory checkers.
    pub placement: Placement,
}

/// Trains the student, writes `metrics.jsonl`, `run.json`, `report.html` and `student/` to the output
/// directory.
///
/// # Errors
/// [`Failure`]; metrics and checkpoints written before it stay.
pub fn distill(config: &RunConfig, mode: Mode, mut startup: Startup) -> Result<(), Failure> {
    startup.end("arguments");
    let teacher = Checkpoint::open(&config.teacher)?;
    let student = Checkpoint::open(&config.student)?;
    startup.end("models");
    let dataset = read_data(config, &teacher, &student)?;
    startup.end("data");
    std::fs::create_dir_all(&config.out).map_err(Failure::io("create", &config.out))?;
    // A disk too small for the result is better known now than after the last step.
    let parameters: u64 = precast_plan::Parameters::new(student.config()).count();
    checkpoint::check_space(&config.out, "the student", parameters * config.precision.dtype().bytes())?;

    let driver = device::open(config.device, &config.kernels())?;
    startup.end("device");
    let mut session = Session::open(driver, config, &teacher, &student, mode.placement, &mut startup)?;
    let heading = session.heading().model("teacher", &config.teacher, &teacher);
    say!("{}\n\n{}", heading.model("student", &config.student, &student), MemoryTable::of(&session.plan().plan));
    upload(&mut session, &teacher, &student)?;
    startup.end("upload");
    let state = State::new(config, &dataset.digest().to_string(), 0);
    let done = if mode.resume { resume::restore(&config.out, &mut session, &state)? } else { 0 };
    check_left(config, done)?;

    // Hashing gigabytes of weights takes a while and nothing waits for it until the end.
    let mut record = RunRecord::new(config, &session, &dataset);
    let (ran, startup) = std::thread::scope(|scope| {
        let digests = scope.spawn(|| Ok::<_, Failure>([teacher.digest()?, student.digest()?]));
        record.write(&config.out)?;
        let metrics = MetricsFile::create(&config.out.join("metrics.jsonl"), done)?;
        let floor_s = session.limit().map(|limit| limit.floor_seconds(&session.plan().plan, config.grad_accum));
        let mut run = Run { config, session: &mut session, startup, metrics, floor_s, skipped: 0 };
        let ran = run.steps(done, &dataset, &state);
        let startup = run.startup;
        record.startup(&startup);
        let digests = digests.join().expect("hashing does not panic")?;
        record.models(&digests);
        record.write(&config.out)?;
        Ok::<_, Failure>((ran, startup))
    })?;
    let ended =
        ran.and_then(|()| end::check(config)).and_then(|()| write_student(config, &mut session, &teacher, &student));
    end::tell(config, &mut record, &startup, ended)?;
    say!("student: {}\nreport:  {}", config.out.join("student").display(), config.out.join("report.html").display());
    Ok(())
}

/// Makes every check of a run that needs no device: of its models, its data and, to `resume`, its checkpoint. Writes
/// nothing.
///
/// # Errors
/// [`Failure`], as the run itself.
pub fn check(config: &RunConfig, resume: bool) -> Result<(), Failure> {
    let teacher = Checkpoint::open(&config.teacher)?;
    let student = Checkpoint::open(&config.student)?;
    let notes = pair::check(&teacher, &student, config.allow_identical)?;
    let dataset = read_data(config, &teacher, &student)?;
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    if resume {
        let state = State::new(config, &dataset.digest().to_string(), 0);
        check_left(config, resume::check(&config.out, &state)?)?;
    }
    Ok(())
}

/// Refuses to continue a run after its last step.
fn check_left(config: &RunConfig, done: u64) -> Result<(), Failure> {
    if done < config.steps {
        return Ok(());
    }
    Err(Failure::Usage(format!("--resume: all {done} steps are done; raise --steps")))
}

/// Checks that the teacher can teach the student, and reads the text that it teaches.
fn read_data(config: &RunConfig, teacher: &Checkpoint, student: &Checkpoint) -> Result<Dataset, Failure> {
    let notes = pair::check(teacher, student, config.allow_identical)?;
    let tokenizer = match student.tokenizer()? {
        Some(tokenizer) => Some(tokenizer),
        None => teacher.tokenizer()?,
    };
    tokenizer.iter().flat_map(|tokenizer| tokenizer.notes()).for_each(|note| eprintln!("note: {note}"));
    let reader =
        Reader { tokenizer, eos: student.eos_token().or_else(|| teacher.eos_token()), vocab: student.config().vocab };
    let dataset = Dataset::read(&config.data, config.seq_len, Packing::Stream, reader)?;
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    Ok(dataset)
}

fn upload(session: &mut Session, teacher: &Checkpoint, student: &Checkpoint) -> Result<(), Failure> {
    let plan = session.plan();
    let bytes = |list: &[precast_plan::Parameter], dtype: Dtype| -> u64 {
        list.iter().map(|parameter| parameter.span.elems * dtype.bytes()).sum()
    };
    let total = bytes(&plan.teacher_parameters.list, plan.teacher.dtype)
        + bytes(&plan.student_parameters.list, session.destination(student).dtype);
    let style = ProgressStyle::with_template("weights {bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
    let bar = ProgressBar::new(total).with_style(style.expect("a valid template"));
    session.upload(teacher, student, |sent| bar.inc(sent))?;
    bar.finish_and_clear();
    Ok(())
}
