//! `precast distill`: the run from the first file to the last.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use precast_fatbins::say;
use precast_kernels::Dtype;
use precast_kernels::abi::step_metrics;
use precast_plan::MemoryTable;
use precast_runtime::{Placement, Ticket};

use crate::checkpoint::{self, Checkpoint, Scratch, Student, write_model};
use crate::config::RunConfig;
use crate::data::{Batches, DataError, Dataset, MicroBatch, Packing, Reader};
use crate::device;
use crate::error::Failure;
use crate::metrics::{MetricsFile, StepRecord, finite};
use crate::record::RunRecord;
use crate::report;
use crate::resume::{self, State};
use crate::session::Session;
use crate::startup::Startup;

/// Steps in a row without a finite gradient norm that end a run.
const MOST_SKIPPED: u32 = 10;

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

    let driver = device::open(config.device)?;
    startup.end("device");
    let mut session = Session::open(driver, config, &teacher, &student, mode.placement, &mut startup)?;
    say!("{}\n{}", session.device().name, MemoryTable::of(&session.plan().plan));
    upload(&mut session, &teacher, &student)?;
    startup.end("upload");
    let state = State::new(config, &dataset.digest().to_string(), 0);
    let done = if mode.resume { resume::restore(&config.out, &mut session, &state)? } else { 0 };
    if done >= config.steps {
        return Err(Failure::Usage(format!("--resume: all {done} steps are done; raise --steps")));
    }

    // Hashing gigabytes of weights takes a while and nothing waits for it until the end.
    std::thread::scope(|scope| {
        let digests = scope.spawn(|| Ok::<_, Failure>([teacher.digest()?, student.digest()?]));
        let mut record = RunRecord::new(config, &session, &dataset);
        record.write(&config.out)?;
        let metrics = MetricsFile::create(&config.out.join("metrics.jsonl"), done)?;
        let floor_s = session.limit().map(|limit| limit.floor_seconds(&session.plan().plan, config.grad_accum));
        let mut run = Run { config, session: &mut session, startup, metrics, floor_s, skipped: 0 };
        run.steps(done, &dataset, &state)?;
        record.startup(&run.startup);
        let digests = digests.join().expect("hashing does not panic")?;
        record.models(&digests);
        record.write(&config.out)
    })?;
    write_student(config, &mut session, &teacher, &student)?;
    report::write(&config.out)?;
    say!("student: {}\nreport:  {}", config.out.join("student").display(), config.out.join("report.html").display());
    Ok(())
}

fn read_data(config: &RunConfig, teacher: &Checkpoint, student: &Checkpoint) -> Result<Dataset, Failure> {
    let tokenizer = match student.tokenizer()? {
        Some(tokenizer) => Some(tokenizer),
        None => teacher.tokenizer()?,
    };
    let reader = Reader {
        tokenizer: tokenizer.as_ref(),
        eos: student.eos_token().or_else(|| teacher.eos_token()),
        vocab: student.config().vocab,
    };
    Ok(Dataset::read(&config.data, config.seq_len, Packing::Stream, reader)?)
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

fn write_student(
    config: &RunConfig,
    session: &mut Session,
    teacher: &Checkpoint,
    student: &Checkpoint,
) -> Result<(), Failure> {
    let parameters = session.plan().student_parameters.list.clone();
    let dtype = config.precision.dtype();
    let model = Student { config: student.json(), parameters: &parameters, dtype, tokenizer_from: &[student, teacher] };
    write_model(&config.out.join("student"), &model, |parameter| {
        let master = session.master(parameter)?;
        if dtype == Dtype::F32 {
            return Ok::<_, Failure>(master);
        }
        let mut scratch = Scratch::new();
        bytemuck::cast_slice_mut(scratch.values(master.len() / 4)).copy_from_slice(&master);
        Ok(scratch.encode(dtype).to_vec())
    })
}

/// A step whose metrics have not been read yet.
struct Pending {
    step: u64,
    lr: f64,
    tokens: u64,
    ticket: Ticket,
}

struct Run<'a> {
    config: &'a RunConfig,
    session: &'a mut Session,
    startup: Startup,
    metrics: MetricsFile,
    /// The least time a step's arithmetic can take on this device, seconds; none on the simulated GPU.
    floor_s: Option<f64>,
    /// Skipped steps in a row.
    skipped: u32,
}

impl Run<'_> {
    /// Steps `done..steps`. The metrics of a step are read while the next one runs.
    fn steps(&mut self, done: u64, dataset: &Dataset, state: &State) -> Result<(), Failure> {
        let config = self.config;
        let shuffle = config.shuffle.then_some(config.seed);
        let mut batches = Batches::new(dataset, config.batch_size, config.seq_len, shuffle);
        let mut pending: Option<Pending> = None;
        let mut last = Instant::now();
        for step in done..config.steps {
            let next = self.enqueue(step, &mut batches)?;
            if let Some(previous) = pending.replace(next) {
                self.finish(previous, &mut last)?;
            }
            let due = config.checkpoint_every > 0 && (step + 1) % config.checkpoint_every == 0;
            let end = step + 1 == config.steps;
            // The first step is waited for, so that start-up is measured to its end.
            if due || end || step == done {
                if let Some(current) = pending.take() {
                    self.finish(current, &mut last)?;
                }
                if step == done {
                    self.startup.end("first step");
                    say!("start-up {:.2} s", self.startup.total_s());
                }
            }
            if due || (end && config.checkpoint_every > 0) {
                let state = State { step: step + 1, ..state.clone() };
                resume::save(&config.out, self.session, &state)?;
                last = Instant::now();
            }
        }
        Ok(())
    }

    /// Asks for a step: all of its micro-batches and the update. Waits for nothing.
    fn enqueue(&mut self, step: u64, batches: &mut Batches<'_>) -> Result<Pending, Failure> {
        let config = self.config;
        let accum = u64::from(config.grad_accum);
        let micros: Vec<MicroBatch> = (0..accum).map(|micro| batches.micro_batch(step * accum + micro)).collect();
        // One mean over all tokens of the step, never a mean of means.
        let counted: u64 = micros.iter().map(|micro| u64::from(micro.counted)).sum();
        if counted == 0 {
            return Err(DataError::NothingCounted { step: step + 1 }.into());
        }
        let loss_scale = (1.0 / counted as f64) as f32;
        for (index, micro) in micros.iter().enumerate() {
            self.session.micro(micro, loss_scale, index > 0)?;
        }
        let lr = config.schedule.lr(config.lr, step, config.warmup, config.steps);
        let ticket = self.session.update(step, lr)?;
        Ok(Pending { step: step + 1, lr, tokens: counted, ticket })
    }

    /// Waits for a step's metrics, writes and prints them.
    fn finish(&mut self, pending: Pending, last: &mut Instant) -> Result<(), Failure> {
        let (metrics, done) = self.session.metrics(pending.ticket)?;
        let seconds = (done - *last).as_secs_f64();
        *last = done;
        let record = StepRecord {
            step: pending.step,
            loss: finite(self.loss(&metrics)),
            kd_loss: finite(f64::from(metrics.kd_loss)),
            ce_loss: finite(f64::from(metrics.ce_loss)),
            grad_norm: finite(f64::from(metrics.grad_norm)),
            lr: pending.lr,
            tokens: pending.tokens,
            step_ms: seconds * 1e3,
            tokens_per_s: pending.tokens as f64 / seconds,
            memory_bytes: self.session.plan().plan.arena_bytes,
            skipped: metrics.skipped != 0,
        };
        self.metrics.push(&record)?;
        print_step(&record, self.config.steps, self.floor_s);
        self.skipped = if record.skipped { self.skipped + 1 } else { 0 };
        if self.skipped >= MOST_SKIPPED {
            return Err(Failure::Diverged { steps: self.skipped });
        }
        Ok(())
    }

    fn loss(&self, metrics: &step_metrics) -> f64 {
        let (alpha, temperature) = (f64::from(self.config.alpha), f64::from(self.config.temperature));
        alpha * temperature * temperature * f64::from(metrics.kd_loss) + (1.0 - alpha) * f64::from(metrics.ce_loss)
    }
}

fn print_step(record: &StepRecord, steps: u64, floor_s: Option<f64>) {
    let number = |value: Option<f64>| value.map_or("not finite".to_owned(), |value| format!("{value:.4}"));
    say!(
        "step {}/{steps}  loss {}  kd {}  ce {}  norm {}  lr {:.2e}  {:.0} tokens/s  {:.0} ms{}{}",
        record.step,
        number(record.loss),
        number(record.kd_loss),
        number(record.ce_loss),
        number(record.grad_norm),
        record.lr,
        record.tokens_per_s,
        record.step_ms,
        floor_s.map(|floor_s| format!("  {:.0} % of floor", 1e5 * floor_s / record.step_ms)).unwrap_or_default(),
        if record.skipped { "  skipped: gradient not finite" } else { "" },
    );
}
