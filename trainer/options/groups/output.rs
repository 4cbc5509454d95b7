//! Options of a run's files, lines and watches.

use clap::{ArgAction, Args, value_parser};
use precast_plan::Precision;
use serde::Serialize;

use super::Change;
use super::values::kept;
use crate::base::record_text::display_or_none;
use crate::inputs::adapter::AdapterChoice;
use crate::options::patience::seconds;
use crate::options::{Patience, UsageError};

/// Files, lines and watches of a run while it trains.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Steps between checkpoints that --resume continues from, besides the one at the end; 0 for none at all
    #[arg(long, value_name = "N", default_value_t = 500, add = Change::AtResume)]
    pub checkpoint_every: u64,
    /// Checkpoints to keep: the latest, and besides them the one with the lowest loss on --eval-data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = kept, add = Change::AtResume)]
    pub keep: u64,
    /// Steps between losses on --eval-data, besides those at checkpoints and at the end; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, add = Change::AtResume)]
    pub eval_every: u64,
    /// Steps between log lines when output is not a terminal; the first and the last step have one
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u64).range(1..), add = Change::AtResume)]
    pub log_every: u64,
    /// Seconds that the GPU may take for one phase of a step before the run ends with 4 and names what hangs; none for no limit.
    /// Time in which the process was stopped does not count [default: 50 times the longest step, 120 at least]
    #[arg(long, value_name = "SECONDS|none", value_parser = seconds, help_heading = "Device", add = Change::AtResume)]
    #[serde(serialize_with = "display_or_none", skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// Steps between comparisons of --precision int8's gradients with bf16's, a layer each, on one micro-batch, besides those at the
    /// first and the last step; 0 for none [default: 100]
    #[arg(long, value_name = "N", help_heading = "Precision", add = Change::AtResume)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard_every: Option<u64>,
    /// Write the student as any other if losses grow so much that the run diverges, and not as student.diverged
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", add = Change::AtResume)]
    pub allow_divergence: bool,
    /// Write an event file for TensorBoard, at checkpoints, after losses on --eval-data and at the end
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", add = Change::AtResume)]
    pub tensorboard: bool,
}

/// Steps between comparisons of gradients where nothing is said.
const GUARD_EVERY: u64 = 100;

impl OutputOptions {
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
            (Precision::Int8, Some(_)) => "of a student that trains, and here an adapter of it does".to_owned(),
            (precision, _) => format!("of --precision int8, and this is --precision {precision}"),
        };
        match self.guard_every {
            Some(_) => Err(UsageError(format!("--guard-every compares gradients {why}: leave it out"))),
            None => Ok(None),
        }
    }
}
