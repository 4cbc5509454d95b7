//! Options of a run's files, lines and watches.

use std::path::PathBuf;

use clap::{ArgAction, Args, value_parser};
use precast_plan::Precision;
use serde::Serialize;

use super::Change;
use super::values::at_least_one;
use crate::base::record_text::display_or_none;
use crate::inputs::adapter::AdapterChoice;
use crate::options::patience::seconds;
use crate::options::{Final, Patience, UsageError};

/// Files, lines and watches of a run while it trains.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Steps between checkpoints that --resume continues from, besides the one at the end; 0 for none at all
    #[arg(long, value_name = "N", default_value_t = 500, add = Change::AtResume)]
    pub checkpoint_every: u64,
    /// Checkpoints to keep: the latest, and besides them the one with the lowest loss on --eval-data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one("--checkpoint-every 0 writes no \
        checkpoints"), add = Change::AtResume)]
    pub keep: u64,
    /// Steps between losses on --eval-data, besides those at checkpoints and at the end; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, add = Change::AtResume)]
    pub eval_every: u64,
    /// Step whose weights become student/ or adapter/: last, or best, that with the lowest loss on --eval-data, for
    /// which a new lowest loss writes a checkpoint that --keep never removes; both writes the best as student.best/ or
    /// adapter.best/ besides
    #[arg(long, value_name = "STEP", default_value_t = Final::Last, add = Change::AtResume)]
    pub r#final: Final,
    /// End the run after so many losses on --eval-data in a row without a new lowest, counted over resumes
    #[arg(long, value_name = "N", value_parser = at_least_one("without --early-stop all --steps are \
        taken"), add = Change::AtResume)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<u64>,
    /// Steps between log lines when output is not a terminal; the first and the last step have one
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u64).range(1..), add =
        Change::AtResume)]
    pub log_every: u64,
    /// Seconds that the GPU may take for one phase of a step before the run ends with 4 and names what hangs; none for
    /// no limit. Time in which the process was stopped does not count [default: 50 times the longest step, 120 at
    /// least]
    #[arg(long, value_name = "SECONDS|none", value_parser = seconds, help_heading = "Device", add = Change::AtResume)]
    #[serde(serialize_with = "display_or_none", skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// Steps between comparisons of --precision int8's gradients with bf16's, a layer each, on one micro-batch, besides
    /// those at the first and the last step; 0 for none [default: 100]
    #[arg(long, value_name = "N", help_heading = "Precision", add = Change::AtResume)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard_every: Option<u64>,
    /// Write the result under its name even if losses grow so much that the run diverges, and not as student.diverged
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", add = Change::AtResume)]
    pub allow_divergence: bool,
    /// Token that ends answers, beside those that the model's files name: it is written into its generation_config.json
    #[arg(long, value_name = "TOKEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_token: Option<String>,
    /// Write an event file for TensorBoard, at checkpoints, after losses on --eval-data and at the end
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", add = Change::AtResume)]
    pub tensorboard: bool,
}

/// What is due after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub checkpoint: bool,
    /// The loss on held-out data, of a run that has any. It is computed at these checkpoints, too.
    pub evaluation: bool,
}

/// Steps between comparisons of gradients where nothing is said.
const GUARD_EVERY: u64 = 100;

impl OutputOptions {
    /// What is due after a step, counted from 1, of a run of so many.
    pub(crate) fn is_due(&self, step: u64, steps: u64) -> Due {
        let end = step == steps;
        let is_due = |every: u64| every > 0 && step.is_multiple_of(every);
        Due {
            checkpoint: self.checkpoint_every > 0 && (end || is_due(self.checkpoint_every)),
            evaluation: end || is_due(self.eval_every),
        }
    }

    /// Refuses options of losses on data that nobody gives, and of checkpoints that nobody writes.
    ///
    /// # Errors
    /// [`UsageError`] names the option.
    pub(crate) fn check_held_out(&self, eval_data: &[PathBuf]) -> Result<(), UsageError> {
        let Self { checkpoint_every, eval_every, r#final, early_stop, .. } = self;
        let wants = [
            (*eval_every > 0).then(|| "--eval-every".to_owned()),
            r#final.has_best().then(|| format!("--final {final}")),
            early_stop.map(|_| "--early-stop".to_owned()),
        ];
        if let Some(option) = wants.into_iter().flatten().next().filter(|_| eval_data.is_empty()) {
            return Err(UsageError(format!("{option} requires --eval-data")));
        }
        if *checkpoint_every == 0 && r#final.has_best() {
            return Err(UsageError(format!(
                "--final {final} takes the weights of the best step from its checkpoint, and --checkpoint-every 0 \
                writes none: give \
                 --checkpoint-every N"
            )));
        }
        if *checkpoint_every == 0 && *eval_every == 0 && early_stop.is_some() {
            return Err(UsageError(
                "--early-stop compares losses on --eval-data, and without checkpoints there is one at the end alone: \
                give \
                 --eval-every N"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Steps between comparisons of int8's gradients with bf16's; none of a run that has none to compare.
    ///
    /// # Errors
    /// [`UsageError`] where they are asked for and there are none.
    pub(crate) fn guard(
        &self,
        precision: Precision,
        adapter: Option<&AdapterChoice>,
    ) -> Result<Option<u64>, UsageError> {
        let why = match (precision, adapter) {
            (Precision::Int8, None) => return Ok(Some(self.guard_every.unwrap_or(GUARD_EVERY))),
            (Precision::Int8, Some(_)) => "cannot be combined with --lora-rank or --adapter: adapters train in bf16",
            _ => "requires --precision int8, whose gradients it compares with bf16's",
        };
        match self.guard_every {
            Some(_) => Err(UsageError(format!("--guard-every {why}. Leave it out"))),
            None => Ok(None),
        }
    }
}
