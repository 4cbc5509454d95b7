//! The steps of a run.

use std::time::Instant;

use precast_plan::Micro;
use precast_runtime::Ticket;

use crate::base::notes;
use crate::base::record_text::finite;
use crate::base::signal::Signal;
use crate::inputs::data::DataError;
use crate::run::checkpoint::{self, State};
use crate::run::error::RunError;
use crate::run::failure::Failure;
use crate::run::gpu::GpuRecord;
use crate::run::guard::Guarded;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::out::Out;
use crate::run::outcome::RunFault;
use crate::run::record::RunRecord;
use crate::run::rollout::RolloutRecord;
use crate::run::samples_file::SamplesFile;
use crate::run::step::StepRecord;
use crate::run::tensorboard::{EVENTS, events};
use crate::run::tokens;

use super::gradients;
use super::held_out::HeldOutVerdict;
use super::on_policy::Mismatch;
use super::open::Opened;
use super::ready::Ready;
use super::running::{Running, Written};

/// Steps in a row without a finite gradient norm that end a run.
const MOST_SKIPPED: u32 = 10;

/// A step whose metrics have not been read yet.
pub(super) struct Pending {
    pub step: u64,
    pub lr: f64,
    pub tokens: u64,
    /// Tokens that predict, counted or not, and the places of the step.
    pub filled: (u64, u64),
    pub ticket: Ticket,
    /// Comparison of int8's gradients with bf16's, where there was one.
    pub guard: Option<Guarded>,
    /// Completions that the step trains on, and their tokens that were scored otherwise in training.
    pub rollouts: Option<(RolloutRecord, Mismatch)>,
    /// Lines of the completions of all ranks, where they are kept.
    pub samples: Option<Vec<u8>>,
}

impl Running<'_> {
    /// Takes the steps that are left. The metrics of a step are read while the next one runs. A signal ends them with a
    /// checkpoint: it and the steps done are returned.
    pub(super) fn take_steps(&mut self) -> Result<Option<(Signal, u64)>, Failure> {
        let (done, steps) = (self.done, self.last_step());
        let has_data = self.run.opened.held_out.is_some();
        let mut pending: Option<Pending> = None;
        let mut last = Instant::now();
        self.run.gpu.begin();
        for step in done..steps {
            // A step that compares gradients, or writes its sequences, waits for them: the time is its own, not that of
            // the step before.
            if (self.is_guarded(step) || self.config().on_policy.is_some())
                && let Some(previous) = pending.take()
            {
                self.finish(previous, &mut last, false)?;
            }
            let next = self.enqueue(step)?;
            self.say_passes();
            if let Some(previous) = pending.replace(next) {
                self.finish(previous, &mut last, false)?;
            }
            let end = step + 1 == steps;
            // After the last step all is done but the student.
            let (stopped, clocks) = self.ranks.agree(self.stop, self.run.gpu.sm_clock_mhz)?;
            let stopped = stopped.filter(|_| !end);
            if self.ranks.count() > 1 {
                self.run.gpu.clocks(&clocks);
            }
            let due = self.config().output.is_due(step + 1, steps);
            // A signal asks for no evaluation: the run has those that it would have had.
            let scored = has_data && (due.checkpoint || due.evaluation);
            // The first step is waited for, so that start-up is measured to its end.
            if stopped.is_some() || due.checkpoint || end || scored || step == done {
                if let Some(current) = pending.take() {
                    self.finish(current, &mut last, scored)?;
                }
                if step == done {
                    self.startup.end("first step");
                    if let Some(progress) = &self.progress {
                        progress.say(&format!("start-up {:.2} s", self.startup.total_s()));
                    }
                }
            }
            self.done = step + 1;
            let verdict = if scored { self.verdict()? } else { HeldOutVerdict::default() };
            let is_saved = stopped.is_some()
                || due.checkpoint
                || verdict.saves
                || verdict.ends && self.config().output.checkpoint_every > 0;
            if is_saved {
                self.save(step + 1)?;
            }
            if is_saved || scored {
                self.publish_events()?;
                last = Instant::now();
                self.run.gpu.begin();
            }
            if let Some(signal) = stopped {
                return Ok(Some((signal, step + 1)));
            }
            if verdict.ends {
                self.end_early()?;
                break;
            }
        }
        self.note_of_teachers();
        self.run.session.collect_masters().map_err(Failure::from)?;
        Ok(None)
    }

    /// Names the teachers of which no step took a row, of a run that was not stopped between.
    fn note_of_teachers(&self) {
        if self.written.is_none() || self.run.opened.begin.step > 0 {
            return;
        }
        for (_, teacher) in
            (0..).zip(self.config().teachers.iter()).filter(|(number, _)| !self.taught_by.contains(number))
        {
            notes::note(format_args!(
                "{} taught nothing: its rows did not fill a micro-batch. Give its data a larger share, or the run \
                more steps",
                teacher.role()
            ));
        }
    }

    /// What follows from the evaluation after the last step.
    fn verdict(&self) -> Result<HeldOutVerdict, Failure> {
        let own = self.written.as_ref().map(|written| written.scores.verdict(self.done, &self.config().output));
        Ok(HeldOutVerdict::shared(own, self.ranks)?)
    }

    /// No step follows, though more were asked for.
    fn end_early(&mut self) -> Result<(), Failure> {
        self.stop.end();
        self.still.check_end(self.done)?;
        Ok(())
    }

    /// Writes what TensorBoard reads, if that is asked for.
    fn publish_events(&mut self) -> Result<(), Failure> {
        let is_asked = self.config().output.tensorboard;
        if let Some(Written { out, record, metrics, .. }) = self.written.as_mut().filter(|_| is_asked) {
            metrics.sync()?;
            publish_events(out, record)?;
        }
        Ok(())
    }

    /// Writes a checkpoint; then the oldest ones go, and with the first one what this run replaces.
    fn save(&mut self, step: u64) -> Result<(), Failure> {
        if let Some(Written { out, .. }) = &self.written {
            out.check_claim()?;
        }
        let Self { run: Ready { opened, session, batches, tokens, .. }, written, ranks, .. } = self;
        let Opened { config, identity, digests, data_digest, .. } = opened;
        identity.models(&digests.weights.get()?, config);
        let data_sha256 = data_digest.get()?;
        identity.data(data_sha256);
        let (lines, metrics_sha256) = match written {
            Some(Written { metrics, .. }) => metrics.sync()?,
            None => (0, tokens::none()),
        };
        let samples = written.as_ref().and_then(|written| written.samples.as_ref());
        let samples = samples.map(SamplesFile::sync).transpose()?;
        let state = State {
            step,
            steps: config.steps(),
            run: identity.clone(),
            tokens_sha256: *tokens,
            metrics_sha256,
            samples,
            shards: checkpoint::shards(session, ranks),
        };
        let path = written.as_ref().map_or(&*config.out, |written| written.out.path());
        let aside = checkpoint::fill(path, session, &state, ranks)?;
        // Another rank puts it in place.
        if written.is_none() {
            session.watch.checkpoint(step);
        }
        let (Some(aside), Some(Written { out, record, scores, .. })) = (aside, written) else { return Ok(()) };
        record.data(Some(data_sha256), batches.passed().map(|passed| passed.total()));
        record.metrics((lines, metrics_sha256));
        record.samples_written = samples.or(record.samples_written);
        record.reached(step);
        out.publish(aside, record)?;
        session.watch.checkpoint(step);
        scores.saved(step);
        let best = scores.best();
        record.best(best);
        checkpoint::prune(out, config.output.keep, best.map(|(step, _)| step))?;
        Ok(out.remove_replaced()?)
    }

    /// Says what the data come to and how often the run takes them, as soon as a pass over them has ended.
    fn say_passes(&mut self) {
        let Ready { opened: Opened { config, corpus, summaries: known, .. }, batches, .. } = &mut self.run;
        if known.is_some() {
            return;
        }
        *known = batches.passed();
        let (Some(progress), Some(passed)) = (&self.progress, known) else { return };
        let (summary, passes) = (passed.total(), config.passes(Some(passed)));
        progress.say(&format!("data     {}: {summary}\nsteps    {passes}", corpus.what()));
        progress.suspend(|| summary.note(corpus.chunk).into_iter().chain(passes.notes()).for_each(notes::note));
    }

    /// True if this rank compares int8's gradients with bf16's in a step, from 0.
    pub(super) fn is_guarded(&self, step: u64) -> bool {
        let (guard_every, steps) = (self.config().output.guard_every, self.config().steps());
        let due = |every| every > 0 && (step == 0 || (step + 1).is_multiple_of(every) || step + 1 == steps);
        self.written.is_some() && guard_every.is_some_and(due)
    }

    /// Asks for a step: all of its micro-batches and the update. Waits for nothing but for gradients that are compared.
    fn enqueue(&mut self, step: u64) -> Result<Pending, Failure> {
        if self.config().on_policy.is_some() {
            return self.enqueue_rollouts(step);
        }
        let is_guarded = self.is_guarded(step);
        let Ready { opened: Opened { config, .. }, session, batches, tokens, .. } = &mut self.run;
        session.activity().at_step(step + 1);
        let accum = u64::from(config.division.grad_accum);
        let rows = batches.step(config.division.grad_accum)?;
        self.taught_by.extend(rows.rows.iter().map(|row| row.teacher));
        // One mean over all tokens of the step, never a mean of means.
        let counted = rows.counted();
        if counted == 0 {
            return Err(DataError::nothing_counted(step + 1).into());
        }
        let loss_scale = (1.0 / counted as f64) as f32;
        let share = config.division.share;
        let (own, each) = share.micros(accum);
        if session.hidden.iter().any(Option::is_some) && step + 1 < config.steps() {
            let next = batches.peek(config.division.grad_accum)?;
            let rows = next.rows_of(own.start as usize..own.end as usize);
            for (number, hidden) in (0..).zip(&session.hidden) {
                if let Some(hidden) = hidden {
                    hidden.read_ahead(rows.iter().filter(|row| row.teacher == number));
                }
            }
        }
        let mut guard = None;
        let micros = vec![each as usize; share.local() as usize];
        session.gradients(&micros, |session, Micro { replica, number, is_last }| {
            let index = replica * each as usize + number;
            let batch = |index| rows.micro_batch(own.start as usize + index);
            session.begin_pass(index, || (index..).map(batch))?;
            let batch = batch(index);
            gradients::of_micro(session, (is_guarded, &mut guard), (&batch, loss_scale), (number, is_last))
        })?;
        let lr = config.optimizer.lr_of(step, config.steps());
        let ticket = session.update(step, lr)?;
        *tokens = tokens::after(*tokens, &rows);
        let filled = (rows.predicting(), rows.places());
        Ok(Pending { step: step + 1, lr, tokens: counted, filled, ticket, guard, rollouts: None, samples: None })
    }

    /// Waits for a step's metrics, writes and prints them; where it is `scored`, with the held-out losses after it.
    fn finish(&mut self, pending: Pending, last: &mut Instant, scored: bool) -> Result<(), Failure> {
        let Ready { opened: Opened { config, held_out, .. }, session, gpu, .. } = &mut self.run;
        let (metrics, done) = session.metrics(pending.ticket)?;
        let seconds = (done - *last).as_secs_f64();
        *last = done;
        gpu.step();
        session.watch.step_takes(seconds);
        let held_out = held_out.as_ref().filter(|_| scored);
        let held_out = held_out.map(|data| data.losses(config, session, self.ranks)).transpose()?;
        let record = StepRecord {
            step: pending.step,
            loss: finite(config.loss(&metrics)),
            kd_loss: finite(f64::from(metrics.kd_loss)),
            ce_loss: finite(f64::from(metrics.ce_loss)),
            grad_norm: finite(f64::from(metrics.grad_norm)),
            lr: pending.lr,
            tokens: pending.tokens,
            step_ms: seconds * 1e3,
            tokens_per_s: pending.tokens as f64 / seconds,
            row_tokens_per_s: Some(pending.filled.0 as f64 / seconds),
            padding_share: Some(1.0 - pending.filled.0 as f64 / pending.filled.1 as f64),
            memory_bytes: session.plan.plan.device_bytes(),
            gpu: match &self.progress {
                Some(progress) if progress.is_due(pending.step) => gpu.record(),
                _ => GpuRecord::default(),
            },
            skipped: metrics.skipped != 0,
            held_out,
            guard: pending.guard,
            rollouts: pending.rollouts.as_ref().map(|(record, _)| record.clone()),
        };
        if let Some(seconds) = session.waited_s()? {
            self.waits.add(record.step, seconds);
        }
        if let Some(Written { out, metrics, scores, samples, .. }) = &mut self.written {
            if let (Some(file), Some(lines)) = (samples, &pending.samples) {
                file.push(lines)?;
            }
            scores.add(&record);
            metrics.push(&record)?;
            metrics.put_back(|| out.check_claim())?;
        }
        if let Some(progress) = &mut self.progress {
            progress.step(&record);
        }
        if let Some((_, mismatch)) = &pending.rollouts {
            mismatch.refuse(record.step)?;
        }
        self.still.check(&record, config.steps())?;
        self.skipped = if record.skipped { self.skipped + 1 } else { 0 };
        if self.skipped >= MOST_SKIPPED {
            return Err(RunFault(format!(
                "{} steps in a row had a gradient norm that is not finite; the weights are those before them. \
                 Lower --lr, lengthen --warmup, or use --precision fp32",
                self.skipped
            ))
            .into());
        }
        Ok(())
    }
}

/// Writes what TensorBoard reads.
pub(super) fn publish_events(out: &mut Out, record: &mut RunRecord) -> Result<(), RunError> {
    let metrics = Metrics::read(&out.path().join(METRICS))?;
    out.publish_file(EVENTS, &events(&metrics.records, record), record)
}
