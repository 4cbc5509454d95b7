//! The end of a run: whether it worked, and what its files say of that.

use precast_core::shell::quoted;
use precast_system::say;

use super::fault::in_step;
use super::open::Opened;
use super::ready::Ready;
use super::result::write_result;
use super::running::{Running, Written};
use super::samples;
use super::steps::publish_events;
use crate::base::notes::{self, warn};
use crate::base::signal::Signal;
use crate::base::stop::{Stopped, resume_command};
use crate::inputs::data::Summary;
use crate::options::schedule::Schedule;
use crate::options::{OptimizerOptions, RunConfig};
use crate::run::checkpoint::Saved;
use crate::run::failure::Failure;
use crate::run::growth;
use crate::run::guard::GuardRecord;
use crate::run::outcome::{self, Outcome, RunFault, Status};
use crate::run::rank_end;
use crate::run::report;
use crate::run::report_file::REPORT;
use crate::run::step::guarded;

/// A run whose steps have ended: all of them, or those before a signal or a failure.
pub(super) struct Ended<'a> {
    run: Running<'a>,
    steps: Result<Option<(Signal, u64)>, Failure>,
}

impl<'a> Running<'a> {
    /// Takes the steps that are left.
    pub fn steps(mut self) -> Ended<'a> {
        let steps = self.take_steps().map_err(|failure| in_step(failure, &self.run.session, self.done));
        // The bar goes.
        self.progress = None;
        Ended { run: self, steps }
    }
}

impl Ended<'_> {
    /// Writes what has been trained and how the run ended, if it is this rank that writes.
    pub fn write(mut self) -> Result<(), Failure> {
        let ready = &self.run.run;
        let summary = ready.batches.passed().map(|passed| passed.total());
        let Some(written) = self.run.written.take() else {
            return match self.steps? {
                // Rank 0 says where, and writes what has been trained.
                Some((signal, _)) => Err(Stopped { signal, done: String::new() }.into()),
                None => Ok(self.run.ranks.barrier()?),
            };
        };
        self.write_all(written, summary)
    }

    fn write_all(self, mut written: Written, summary: Option<Summary>) -> Result<(), Failure> {
        let Self { mut run, steps } = self;
        let waited_ms = run.waits.ms_a_step();
        written.record.startup(&run.startup.record());
        written.record.waited_ms_a_step = waited_ms;
        let limits = run.run.gpu.limits();
        written.record.gpu = limits;
        if let Some(text) = limits.and_then(|limits| limits.text()) {
            say!("gpu:     {text}");
        }
        // The failure that ended the run says more than what could not be recorded of it.
        let recorded = record_inputs(&mut run.run.opened, summary, &mut written);
        let ended = match steps.and_then(|stopped| recorded.map(|()| stopped)) {
            Err(failure) => Err(failure),
            Ok(Some((signal, step))) => {
                let steps = run.config().steps();
                let done = format!("after step {step} of {steps}. Continue with:\n  {}", resume_command());
                Err(Stopped { signal, done }.into())
            }
            Ok(None) => {
                say_early(run.config(), run.done, &written);
                let ended = write_trained(run.done, &mut run.run, &mut written);
                ended.and_then(|()| take_samples(run.done, &mut run.run, &mut written))
            }
        };
        // A rank that has failed is why.
        let ended = ended.map_err(|failure| rank_end::cause(run.ranks, failure));
        let elapsed_s = run.startup.elapsed_s();
        let results = written.record_outcome(run.config(), (run.done, elapsed_s), ended)?;
        run.ranks.barrier()?;
        say_where(run.config(), &results, waited_ms);
        if let Some(largest) = written.record.largest_update {
            say!("update:  {largest:.2e}, the largest change of a weight");
        }
        Ok(())
    }
}

/// Records completions of held-out prompts, if there are any.
fn take_samples(done: u64, run: &mut Ready, written: &mut Written) -> Result<(), Failure> {
    let Ready { opened: Opened { config, models, held_out, .. }, session, .. } = run;
    let Some(held_out) = held_out else { return Ok(()) };
    let held_out = (held_out.chunks(), config.completions);
    let samples = samples::of_held_out(session, models, held_out, done)?;
    written.record.samples = Some(samples);
    Ok(())
}

/// Records the digests of models and data, as far as they are known.
fn record_inputs(opened: &mut Opened, summary: Option<Summary>, written: &mut Written) -> Result<(), Failure> {
    written.record.models(&opened.digests.weights.get()?, &opened.config);
    written.record.data(Some(opened.data_digest.get()?), summary);
    Ok(written.out.record(&mut written.record)?)
}

/// Says that evaluations have ended a run before its last step.
fn say_early(config: &RunConfig, done: u64, written: &Written) {
    let steps = config.steps();
    if done == steps {
        return;
    }
    say!("early:   after step {done} of {steps}: {}", written.scores.why());
    if config.optimizer.schedule == Schedule::Cosine {
        let lr = config.optimizer.lr_of(done - 1, steps);
        notes::note(format_args!(
            "--schedule cosine was not finished: the learning rate of step {done}, the last, was {lr:.2e}, and would \
            have come to 0 at \
             step {steps}"
        ));
    }
}

/// Says where results are, and after which steps their weights are.
fn say_where(config: &RunConfig, results: &[(String, u64)], waited_ms: Option<f64>) {
    let path = |name: &str| config.out.join(name);
    if let Some(milliseconds) = waited_ms {
        say!("ranks:   {milliseconds:.2} ms per step spent waiting for exchanges");
    }
    for (name, step) in results {
        let label = name.replacen(config.result(), config.trained(), 1);
        say!("{:<8} {} (step {step})", format!("{label}:"), path(name).display());
    }
    if let Some((file, (name, _))) = config.file().zip(results.first()) {
        let model = quoted(&path(name).to_string_lossy());
        say!("file:    precast export --model {model} {} --out MODEL.gguf", file.arguments());
    }
    say!("report:  {}", path(REPORT).display());
}

/// Writes what a run has trained in so many steps, unless they show that it did not work; where its losses have grown,
/// under another name.
fn write_trained(done: u64, run: &mut Ready, written: &mut Written) -> Result<(), Failure> {
    let records = written.metrics.records()?;
    outcome::check(&records)?;
    let Opened { config, models, .. } = &run.opened;
    let OptimizerOptions { lr, warmup, clip, .. } = config.optimizer;
    let growth = growth::of(&records, config.objective, models.student().config().vocab)
        .filter(|_| !config.output.allow_divergence);
    let (diverged, result) = (config.diverged(), config.result());
    let results = results_of(config, done, written)?;
    for (name, step) in &results {
        let name = if growth.is_some() && name == result { &diverged } else { name };
        // Of a step before the last the device has nothing: its checkpoint is verified, and read on the host.
        let saved = (*step != done).then(|| Saved::open(written.out.path(), *step)).transpose()?;
        write_result(name, saved.as_ref(), run, written)?;
    }
    let out = &mut written.out;
    out.remove_replaced()?;
    if let Some(growth) = growth {
        let result = out.path().join(diverged).display().to_string();
        return Err(RunFault(format!(
            "the run diverged: {growth}. It had --lr {lr}, --warmup {warmup} and --clip {clip}: lower --lr, lengthen \
            --warmup or lower \
             --clip. The model is in {result}; --resume --allow-divergence takes it as it is"
        ))
        .into());
    }
    // A model of a part of the run that was not taken as it is goes.
    if out.path().join(&diverged).exists() {
        out.remove(&diverged)?;
    }
    Ok(())
}

/// What a run writes that ends after so many steps, and of which steps.
fn results_of(config: &RunConfig, done: u64, written: &Written) -> Result<Vec<(String, u64)>, RunFault> {
    let best = written.scores.best().map(|(step, _)| step);
    config.results(done, best).ok_or_else(|| {
        RunFault(format!(
            "--final {}: no loss on --eval-data was finite after a step with a checkpoint, so none is the lowest: no \
            student is written. \
             --resume --final last writes that of the last step",
            config.output.r#final
        ))
    })
}

impl Written {
    /// Writes into `run.json` and `report.html` how a run ended after so many steps, and seconds. Its own failure says
    /// more than one of writing that. Returns what it has left, and of which steps.
    pub fn record_outcome(
        &mut self,
        config: &RunConfig,
        (done, elapsed_s): (u64, f64),
        ended: Result<(), Failure>,
    ) -> Result<Vec<(String, u64)>, Failure> {
        let results = ended.as_ref().ok().and_then(|()| results_of(config, done, self).ok()).unwrap_or_default();
        let Self { out, record, metrics, .. } = self;
        let (status, reason) = match &ended {
            Ok(()) => (Status::Done, None),
            Err(Failure::Stopped(_)) => (Status::Stopped, None),
            Err(failure) => (Status::Failed, Some(failure.to_string())),
        };
        let write = || {
            let records = metrics.records()?;
            metrics.put_back(|| out.check_claim())?;
            let guard = GuardRecord::of(guarded(&records));
            record.guard.clone_from(&guard);
            record.outcome = Some(Outcome::new(status, reason, &records, elapsed_s));
            if let Some(warning) = guard.and_then(|guard| guard.warning()) {
                warn(warning);
            }
            // Results are recorded last of all: a run without them rewrites its student and its report.
            let mut finished = record.clone();
            results.iter().for_each(|(name, step)| finished.result(name, *step));
            let html = report::of_run(out.path(), &finished)?;
            out.publish_file(REPORT, html.as_bytes(), record)?;
            if config.output.tensorboard {
                publish_events(out, record)?;
            }
            if status == Status::Done {
                *record = finished;
                record.reached(done);
            }
            out.record(record)
        };
        let written = write();
        ended.and(written.map_err(Failure::from)).map(|()| results)
    }
}
