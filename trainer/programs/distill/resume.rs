//! Continuation of a run: what it has in common with the run so far.

use std::path::PathBuf;

use precast_fatbins::Digest;
use precast_system::say;

use super::held_out::Scores;
use crate::base::difference::Difference;
use crate::base::io::IoError;
use crate::options::schedule::Schedule;
use crate::options::{Length, OptionSource, Options, RunConfig, UsageError};
use crate::run::checkpoint::{self, Saved, State};
use crate::run::error::RunError;
use crate::run::failure::Failure;
use crate::run::identity::Identity;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::out::Out;
use crate::run::record::{RunRecord, Since};
use crate::run::samples_file::SAMPLES_FILE;
use crate::run::step::StepRecord;

/// A run that is to be continued, verified.
pub struct Resumed {
    /// Its last checkpoint.
    pub saved: Saved,
    /// Its lines so far.
    pub metrics: Metrics,
    pub record: RunRecord,
    path: PathBuf,
    /// Steps that it was to take, where they must not change.
    steps: Option<Difference>,
}

impl Resumed {
    /// Reads and verifies the last checkpoint and the metrics of the run in an output directory. `config` is of a run
    /// that starts.
    ///
    /// # Errors
    /// [`Failure`] where there is no checkpoint, or something was changed since it was written.
    pub fn open(out: &Out, config: &RunConfig) -> Result<Self, Failure> {
        let path = out.path().to_owned();
        let Some(step) = checkpoint::steps(&path)?.pop() else {
            return Err(RunError::no_checkpoint(&path, ", with --overwrite").into());
        };
        let saved = Saved::open(&path, step)?;
        let metrics = Metrics::read(&path.join(METRICS))?;
        metrics.check(step, saved.state.metrics_sha256)?;
        saved.state.samples.map_or(Ok(()), |samples| samples.check(&path))?;
        let record = RunRecord::read(&path)?;
        // Completions that no part of the run has written are somebody's.
        if record.samples_written.is_none() && config.on_policy.is_some_and(|asked| asked.samples_every > 0) {
            out.check_replaceable(SAMPLES_FILE)?;
        }
        for result in [config.result(), &config.best_result(), &config.diverged()] {
            out.check_replaceable(result)?;
        }
        Ok(Self { saved, metrics, record, path, steps: None })
    }

    /// Compares the number of steps, where [`Self::compare`] is to refuse another: the learning rates of a cosine
    /// follow from it, so a file that was edited is not enough.
    pub fn compare_steps(&mut self, asked: &Options, config: &RunConfig) {
        let (was, is) = (self.saved.state.steps, config.steps());
        let sources = [Some(asked.steps.source), asked.epochs.map(|epochs| epochs.source)];
        let by_flag = sources.contains(&Some(OptionSource::CommandLine));
        let refused = is != was && config.optimizer.schedule == Schedule::Cosine && !by_flag;
        self.steps = refused.then(|| Difference {
            name: "steps".to_owned(),
            was: was.to_string(),
            is: match config.length {
                Length::Counted { epochs, .. } => {
                    format!("{is}, which under cosine takes --epochs {epochs} on the command line")
                }
                _ => format!("{is}, which under cosine takes --steps {is} on the command line"),
            },
        });
    }

    /// Refuses to continue another run.
    ///
    /// # Errors
    /// [`UsageError`] with every difference.
    pub fn compare(&self, run: &Identity) -> Result<(), UsageError> {
        let differences = run.differences(&self.saved.state.run).into_iter().chain(self.steps.clone());
        let differences: Vec<String> = differences.map(|difference| format!("  {difference}")).collect();
        if differences.is_empty() {
            return Ok(());
        }
        Err(UsageError(format!(
            "--resume: {} is another run:\n{}\nUse the values that it was started with, or choose another --out",
            self.path.display(),
            differences.join("\n")
        )))
    }

    /// Refuses to continue on other tokens than those that the run has seen.
    ///
    /// # Errors
    /// [`RunError::Unusable`].
    pub fn check_tokens(&self, seen: Digest) -> Result<(), RunError> {
        let State { step, tokens_sha256, .. } = self.saved.state;
        if seen == tokens_sha256 {
            return Ok(());
        }
        Err(RunError::Unusable(format!(
            "{}: the tokens of its {step} steps are not those that this program would have trained on. The data are \
            the same, so \
             another version of Precast started the run: continue it with that version",
            self.path.join(checkpoint::name(step)).display()
        )))
    }

    /// Its steps that are done.
    pub fn steps(&self) -> &[StepRecord] {
        &self.metrics.records[..self.saved.state.step as usize]
    }

    /// Held-out losses so far of these data, and since when they are of them.
    ///
    /// # Errors
    /// [`IoError`] of the output directory.
    pub fn scores(&self, held_out: Option<Digest>) -> Result<(Option<Since>, Scores), IoError> {
        let since = Since::of(Some(&self.record), held_out, self.saved.state.step);
        let scores = Scores::of(Since::compared(since, self.steps()), &checkpoint::steps(&self.path)?);
        Ok((since, scores))
    }

    /// Says, and returns, what is not as it was before.
    pub fn changes(&self, config: &RunConfig) -> Vec<String> {
        let changes = self.record.changes(config);
        changes.iter().for_each(|change| say!("changed: {change}"));
        changes
    }

    /// Checks that a run whose steps are all done, or whose held-out losses have ended it, has still to write what it
    /// has trained.
    ///
    /// # Errors
    /// [`Failure::Usage`] where nothing is left to do, or nothing can be written.
    pub fn check_left(&self, config: &RunConfig, held_out: Option<Digest>) -> Result<(), Failure> {
        let (done, (_, scores)) = (self.saved.state.step, self.scores(held_out)?);
        let is_early = done < config.steps() && scores.ends(&config.output);
        if done < config.steps() && !is_early {
            return Ok(());
        }
        let is_written = |(name, step): &(String, u64)| {
            self.record.result_step(name) == Some(*step) && self.path.join(name).exists()
        };
        let results = config.results(done, scores.best().map(|(step, _)| step));
        let why = match results {
            None => {
                "none of them has a checkpoint and a loss on --eval-data that --final could choose; raise --steps, \
                or give --final last"
            }
            Some(results) if done <= config.steps() && !results.iter().all(is_written) => return Ok(()),
            Some(_) if is_early => "--early-stop has ended the run; raise it, or leave it out",
            Some(_) if matches!(config.length, Length::Counted { .. }) => "raise --epochs",
            Some(_) => "raise --steps",
        };
        let which = if is_early { "" } else { "all " };
        Err(Failure::usage(format!("--resume: {which}{done} steps are done; {why}")))
    }
}
