//! The steps of a run.

use std::time::Instant;

use precast_fatbins::{Digest, say};
use precast_runtime::Ticket;

use crate::config::RunConfig;
use crate::data::{Batches, DataError, Dataset};
use crate::error::Failure;
use crate::metrics::{MetricsFile, StepRecord, finite};
use crate::ranks::Ranks;
use crate::record::RunRecord;
use crate::run::checkpoint::{self, State};
use crate::run::identity::Identity;
use crate::run::out::Out;
use crate::run::stop::{Signal, Stop};
use crate::run::tokens;
use crate::session::Session;
use crate::startup::Startup;

use super::inputs::ModelDigests;

/// Steps in a row without a finite gradient norm that end a run.
const MOST_SKIPPED: u32 = 10;

/// A step whose metrics have not been read yet.
struct Pending {
    step: u64,
    lr: f64,
    tokens: u64,
    ticket: Ticket,
}

pub(super) struct Run<'a> {
    pub config: &'a RunConfig,
    pub session: &'a mut Session,
    pub startup: Startup,
    /// The least time a step's arithmetic can take on this device, seconds; none on the simulated GPU.
    pub floor_s: Option<f64>,
    /// Skipped steps in a row.
    pub skipped: u32,
    /// What rank 0 writes.
    pub written: Option<Written<'a>>,
    /// What the run is; the digests of its models come later.
    pub identity: Identity,
    pub digests: &'a mut ModelDigests,
    /// Running digest of the tokens of the steps asked for.
    pub tokens: Digest,
    pub stop: &'a Stop,
    pub ranks: &'a Ranks,
}

/// What is written of a run.
pub(super) struct Written<'a> {
    pub out: &'a mut Out,
    pub record: &'a mut RunRecord,
    pub metrics: MetricsFile,
}

impl Run<'_> {
    /// Steps `done..steps`. The metrics of a step are read while the next one runs. A signal ends them with a checkpoint:
    /// it and the steps done are returned.
    pub fn steps(&mut self, done: u64, dataset: &Dataset) -> Result<Option<(Signal, u64)>, Failure> {
        let config = self.config;
        let shuffle = config.settings.shuffle.then_some(config.settings.seed);
        let mut batches = Batches::new(dataset, config.settings.batch_size, config.settings.seq_len, shuffle);
        let mut pending: Option<Pending> = None;
        let mut last = Instant::now();
        for step in done..config.settings.steps {
            let next = self.enqueue(step, &mut batches)?;
            if let Some(previous) = pending.replace(next) {
                self.finish(previous, &mut last)?;
            }
            let every = config.settings.checkpoint_every;
            let end = step + 1 == config.settings.steps;
            // After the last step all is done but the student.
            let stopped = self.ranks.asked_to_stop(self.stop.requested())?.filter(|_| !end);
            let due = stopped.is_some() || every > 0 && (end || (step + 1) % every == 0);
            // The first step is waited for, so that start-up is measured to its end.
            if due || end || step == done {
                if let Some(current) = pending.take() {
                    self.finish(current, &mut last)?;
                }
                if step == done {
                    self.startup.end("first step");
                    if self.written.is_some() {
                        say!("start-up {:.2} s", self.startup.total_s());
                    }
                }
            }
            if due {
                self.save(step + 1)?;
                last = Instant::now();
            }
            if let Some(signal) = stopped {
                return Ok(Some((signal, step + 1)));
            }
        }
        Ok(None)
    }

    /// Writes a checkpoint; then the oldest ones go, and with the first one what this run replaces.
    fn save(&mut self, step: u64) -> Result<(), Failure> {
        if let Some(Written { out, .. }) = &self.written {
            out.check_claim()?;
        }
        self.identity.models(self.digests.get()?);
        let (lines, metrics_sha256) = match &mut self.written {
            Some(Written { metrics, .. }) => metrics.sync()?,
            None => (0, tokens::none()),
        };
        let state = State {
            step,
            steps: self.config.settings.steps,
            run: self.identity.clone(),
            tokens_sha256: self.tokens,
            metrics_sha256,
            shards: checkpoint::shards(self.session, self.ranks),
        };
        let path = self.written.as_ref().map_or(&*self.config.out, |written| written.out.path());
        let aside = checkpoint::fill(path, self.session, &state, self.ranks)?;
        let (Some(aside), Some(Written { out, record, .. })) = (aside, &mut self.written) else { return Ok(()) };
        record.metrics((lines, metrics_sha256));
        record.reached(step);
        out.publish(aside, record)?;
        checkpoint::prune(out, self.config.settings.keep)?;
        out.remove_replaced()
    }

    /// Asks for a step: all of its micro-batches and the update. Waits for nothing.
    fn enqueue(&mut self, step: u64, batches: &mut Batches<'_>) -> Result<Pending, Failure> {
        let config = self.config;
        let accum = u64::from(config.settings.grad_accum);
        let micros = step * accum..(step + 1) * accum;
        // One mean over all tokens of the step, never a mean of means. Micro-batches are laid out one at a time: a step
        // may have more of them than there is memory.
        let counted: u64 = micros.clone().map(|micro| batches.counted(micro)).sum();
        if counted == 0 {
            return Err(DataError::NothingCounted { step: step + 1 }.into());
        }
        let loss_scale = (1.0 / counted as f64) as f32;
        let share = config.share;
        let (own, each) = share.micros(accum);
        for micro in own.clone() {
            let (replica, of_replica) = ((micro - own.start) / each, (micro - own.start) % each);
            self.session.micro(&batches.micro_batch(micros.start + micro), loss_scale, of_replica > 0)?;
            if let Some(fold) = share.fold(replica as u32).filter(|_| of_replica + 1 == each) {
                self.session.fold(fold)?;
            }
        }
        let lr = config.settings.schedule.lr(config.settings.lr, step, config.settings.warmup, config.settings.steps);
        let ticket = self.session.update(step, lr)?;
        self.tokens = tokens::after(self.tokens, batches, step, accum);
        Ok(Pending { step: step + 1, lr, tokens: counted, ticket })
    }

    /// Waits for a step's metrics, writes and prints them.
    fn finish(&mut self, pending: Pending, last: &mut Instant) -> Result<(), Failure> {
        let (metrics, done) = self.session.metrics(pending.ticket)?;
        let seconds = (done - *last).as_secs_f64();
        *last = done;
        let record = StepRecord {
            step: pending.step,
            loss: finite(self.config.loss(&metrics)),
            kd_loss: finite(f64::from(metrics.kd_loss)),
            ce_loss: finite(f64::from(metrics.ce_loss)),
            grad_norm: finite(f64::from(metrics.grad_norm)),
            lr: pending.lr,
            tokens: pending.tokens,
            step_ms: seconds * 1e3,
            tokens_per_s: pending.tokens as f64 / seconds,
            memory_bytes: self.session.plan().plan.device_bytes(),
            skipped: metrics.skipped != 0,
        };
        if let Some(Written { metrics, .. }) = &mut self.written {
            metrics.push(&record)?;
            print_step(&record, self.config, self.floor_s);
        }
        self.skipped = if record.skipped { self.skipped + 1 } else { 0 };
        if self.skipped >= MOST_SKIPPED {
            return Err(Failure::Diverged { steps: self.skipped });
        }
        Ok(())
    }
}

fn print_step(record: &StepRecord, config: &RunConfig, floor_s: Option<f64>) {
    let number = |value: Option<f64>| value.map_or("not finite".to_owned(), |value| format!("{value:.4}"));
    // Without a teacher the loss is the cross entropy and nothing else.
    let parts = match config.objective.has_teacher() {
        true => format!("  kd {}  ce {}", number(record.kd_loss), number(record.ce_loss)),
        false => String::new(),
    };
    say!(
        "step {}/{}  loss {}{parts}  norm {}  lr {:.2e}  {:.0} tokens/s  {:.0} ms{}{}",
        record.step,
        config.settings.steps,
        number(record.loss),
        number(record.grad_norm),
        record.lr,
        record.tokens_per_s,
        record.step_ms,
        floor_s.map(|floor_s| format!("  {:.0} % of floor", 1e5 * floor_s / record.step_ms)).unwrap_or_default(),
        if record.skipped { "  skipped: gradient not finite" } else { "" },
    );
}
