//! Outcome of a run: how it ended, and whether it did its work.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::run::guard::GuardRecord;
use crate::run::step::{StepRecord, guarded, mean};

/// Last steps whose losses make a mean.
const MEAN_OF: usize = 5;
/// Last steps of which none may have been skipped.
const LAST: usize = 10;
/// Skipped steps of all that are too many, as a share of 1 over this.
const MOST_SKIPPED: u64 = 100;

/// A run, or another command, that came to its end and did not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunFault(pub String);

const ADVICE: &str = ": no student is written. Lower --lr, lengthen --warmup, or use --precision fp32";

/// Refuses a run whose steps, all of them, do not show that it worked.
///
/// # Errors
/// [`RunFault`].
pub fn check(records: &[StepRecord]) -> Result<(), RunFault> {
    if let Some(StepRecord { step, loss: None, .. }) = records.last() {
        return Err(RunFault(format!("the loss of the last step ({step}) is not finite{ADVICE}")));
    }
    let last = &records[records.len().saturating_sub(LAST)..];
    let (lately, of) = (skipped(last), last.len());
    if lately > 0 {
        return Err(RunFault(format!(
            "{lately} of the last {of} steps were skipped, their gradients not finite{ADVICE}"
        )));
    }
    let (skipped, steps) = (skipped(records), records.len() as u64);
    if skipped * MOST_SKIPPED > steps {
        let why = format!("{skipped} of {steps} steps were skipped, more than 1 %, their gradients not finite{ADVICE}");
        return Err(RunFault(why));
    }
    Ok(())
}

/// Status of a run at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every step, and the student is written.
    Done,
    /// It ended by itself, before that.
    Failed,
    /// It was asked to end before that.
    Stopped,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        })
    }
}

/// Record of a run's end in `run.json`. A run that was killed has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Status at the end.
    pub status: Status,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Warning that should make people look twice at a run that did its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Steps done, those before a resume and the skipped ones among them.
    pub steps_done: u64,
    /// Steps that left the weights alone: their gradient norm was not finite.
    pub steps_skipped: u64,
    /// Loss of step 1; none where it is not finite.
    pub first_loss: Option<f64>,
    /// Mean loss of the last five steps, of those where it is finite.
    pub last_loss: Option<f64>,
    /// Time from the process's start to its end, seconds.
    pub wall_s: f64,
}

impl Outcome {
    /// Creates the outcome of a run with these steps.
    pub fn new(status: Status, reason: Option<String>, records: &[StepRecord], wall_s: f64) -> Self {
        let count = records.len().min(MEAN_OF);
        Self {
            status,
            reason,
            warning: GuardRecord::of(guarded(records)).and_then(|guard| guard.warning()),
            steps_done: records.len() as u64,
            steps_skipped: skipped(records),
            first_loss: records.first().and_then(|record| record.loss),
            last_loss: mean(&records[records.len() - count..], |record| record.loss),
            wall_s,
        }
    }
}

fn skipped(records: &[StepRecord]) -> u64 {
    records.iter().filter(|record| record.skipped).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::steps;

    #[test]
    fn a_run_that_ends_without_a_loss_has_failed() {
        assert_eq!(check(&steps(&[2.0, 1.0], &[])), Ok(()));
        for last in [f64::NAN, f64::INFINITY] {
            let RunFault(why) = check(&steps(&[2.0, last], &[1])).unwrap_err();
            assert!(why.starts_with("the loss of the last step (2) is not finite: no student is written"), "{why}");
        }
    }

    /// None of the last ten, and one in a hundred.
    #[test]
    fn more_skipped_steps_than_may_be_are_counted() {
        for (count, skipped, said) in [
            (1000, &[990][..], "1 of the last 10 steps were skipped"),
            (1000, &[989], ""),
            (3, &[0, 1], "2 of the last 3 steps were skipped"),
            (200, &[3, 5], ""),
            (200, &[3, 5, 7], "3 of 200 steps were skipped"),
            (99, &[3], "1 of 99 steps were skipped"),
        ] {
            let fault = check(&steps(&vec![1.0; count], skipped)).err().map_or(String::new(), |RunFault(why)| why);
            assert_eq!(fault.split(',').next(), Some(said), "{skipped:?} of {count}");
        }
    }

    #[test]
    fn an_outcome_holds_first_loss_mean_of_last_five_and_counts() {
        let losses = [9.0, f64::NAN, 7.0, 8.0, 8.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let outcome = Outcome::new(Status::Done, None, &steps(&losses, &[1]), 1.5);
        assert_eq!((outcome.first_loss, outcome.last_loss), (Some(9.0), Some(3.0)));
        assert_eq!((outcome.steps_done, outcome.steps_skipped), (11, 1));
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!((&json["status"], json.get("reason")), (&"done".into(), None));
        let short = Outcome::new(Status::Stopped, None, &steps(&[2.0, 4.0], &[]), 1.0);
        assert_eq!((short.first_loss, short.last_loss), (Some(2.0), Some(3.0)));
        let none = Outcome::new(Status::Failed, Some("why".into()), &[], 1.0);
        assert_eq!((none.first_loss, none.steps_done), (None, 0));
        assert_eq!(serde_json::to_value(&none).unwrap()["reason"], "why");
    }
}
