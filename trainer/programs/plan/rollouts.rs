//! Slots of the completions that a student writes, and what it takes with others.

use std::fmt::{self, Display, Formatter};

use precast_plan::{PlanError, TrainingPlan, human_bytes};
use serde::Serialize;

use crate::device::fit::{Choice, Fit, Lower};
use crate::device::training::Training;

/// The slots that a run would take, and fewer.
#[derive(Debug, Serialize)]
pub(super) struct Rollouts {
    pub slots: u32,
    /// Tokens of each.
    pub seq_len: u32,
    choices: Vec<SlotsTaken>,
}

/// A number of slots, and what the run takes with it.
#[derive(Debug, Serialize)]
struct SlotsTaken {
    slots: u32,
    bytes: u64,
}

impl Rollouts {
    /// Lists the numbers of slots that a run tries, and what it takes with each. None of a run that writes nothing.
    pub fn of(run: &Training<'_>, fit: &Fit<TrainingPlan>) -> Result<Option<Self>, PlanError> {
        let Some(completions) = run.config.completions else { return Ok(None) };
        let choices = completions.rollout_slots.tries(run.config.own_sequences()).map(|slots| {
            let bytes = run.lower(Choice { slots, ..fit.choice })?.plan.device_bytes();
            Ok(SlotsTaken { slots, bytes })
        });
        let choices = choices.collect::<Result<_, PlanError>>()?;
        Ok(Some(Self { slots: fit.choice.slots, seq_len: run.config.shape.seq_len, choices }))
    }
}

impl Display for Rollouts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "--rollout-slots        takes                     each of {} tokens", self.seq_len)?;
        for SlotsTaken { slots, bytes } in &self.choices {
            let chosen = if *slots == self.slots { "  (chosen)" } else { "" };
            writeln!(f, "  {slots:<14} {:>12}  {bytes:>16} bytes{chosen}", human_bytes(*bytes))?;
        }
        Ok(())
    }
}
