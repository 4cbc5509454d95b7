//! Slots of the completions that a student writes, and what it takes with others.

use std::fmt::{self, Display, Formatter};

use precast_plan::human_bytes;
use serde::Serialize;

use super::forms::Forms;
use crate::options::{RunConfig, SlotChoice, SlotsUnfit};
use crate::programs::failure::Failure;

/// A run with as many slots as it would take.
pub(super) struct Slotted {
    pub config: RunConfig,
    pub forms: Forms,
    /// Slots that do not fit, of a run that does not.
    pub unfit: Option<SlotsUnfit>,
}

impl Slotted {
    /// Finds the slots by the forms that a run can have with them; of a run that writes nothing those are of the run itself.
    pub fn of(config: &RunConfig, forms: impl Fn(&RunConfig) -> Result<Forms, Failure>) -> Result<Self, Failure> {
        let with = |config: RunConfig, unfit| Ok(Self { forms: forms(&config)?, config, unfit });
        let Some(completions) = config.completions else { return with(config.clone(), None) };
        let fitting = |count| match with(config.with_slots(count), None) {
            Ok(found) => found.forms.fits().then_some(Ok(found)),
            Err(failure) => Some(Err(failure)),
        };
        completions.rollout_slots.search(config.own_sequences(), fitting).unwrap_or_else(|unfit| {
            // As the run says what it takes.
            let count = if completions.rollout_slots == SlotChoice::Auto { 1 } else { unfit.asked };
            with(config.with_slots(count), Some(unfit))
        })
    }
}

/// The slots that a run would take, and fewer.
#[derive(Debug, Serialize)]
pub(super) struct Rollouts {
    pub slots: u32,
    /// Tokens of each.
    pub seq_len: u32,
    choices: Vec<Choice>,
}

/// A number of slots, and what the run takes with it.
#[derive(Debug, Serialize)]
struct Choice {
    slots: u32,
    bytes: u64,
}

impl Rollouts {
    /// Lists the numbers of slots that a run tries; `bytes` is what it takes with one. None of a run that writes nothing.
    pub fn of(
        asked: &RunConfig,
        chosen: &RunConfig,
        bytes: impl Fn(&RunConfig) -> Result<u64, Failure>,
    ) -> Result<Option<Self>, Failure> {
        let Some((asked_for, chosen)) = asked.completions.zip(chosen.completions) else { return Ok(None) };
        let own = asked.own_sequences();
        let choices = asked_for.rollout_slots.tries(own).map(|slots| {
            let bytes = bytes(&asked.with_slots(slots))?;
            Ok(Choice { slots, bytes })
        });
        let choices = choices.collect::<Result<_, Failure>>()?;
        Ok(Some(Self { slots: chosen.rollout_slots.most(own), seq_len: asked.shape.seq_len, choices }))
    }
}

impl Display for Rollouts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "--rollout-slots        takes                     each of {} tokens", self.seq_len)?;
        for Choice { slots, bytes } in &self.choices {
            let chosen = if *slots == self.slots { "  (chosen)" } else { "" };
            writeln!(f, "  {slots:<14} {:>12}  {bytes:>16} bytes{chosen}", human_bytes(*bytes))?;
        }
        Ok(())
    }
}
