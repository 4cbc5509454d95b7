//! Answer of a plan: does the run fit, and if not, by which changes?

use std::fmt;

use precast_plan::{TrainingPlan, human_bytes};
use serde::{Serialize, Serializer};

use super::changes::{Change, least_changes};
use crate::device::fit::Fit;
use crate::device::memory::{Memory, Takes};
use crate::device::training::Training;
use crate::device::unfit::{Remedy, Unfit};
use crate::run::failure::Failure;

/// Comparison of a run with the memory that there is.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    #[serde(flatten)]
    pub memory: Memory,
    pub fits: bool,
    /// Least changes by which a run fits that does not; empty where none of those that are tried does.
    #[serde(rename = "least_change", serialize_with = "first")]
    pub changes: Vec<Change>,
    #[serde(skip)]
    takes: Takes,
}

fn first<S: Serializer>(changes: &[Change], to: S) -> Result<S::Ok, S::Error> {
    changes.first().serialize(to)
}

impl Answer {
    /// Answers for a run; none where there is nothing to compare with.
    pub fn of(run: &Training<'_>, fit: &Fit<TrainingPlan>) -> Option<Self> {
        let memory = fit.memory.clone()?;
        let fits = fit.is_within();
        let changes = if fits { Vec::new() } else { least_changes(run, fit) };
        Some(Self { memory, fits, changes, takes: fit.takes })
    }

    /// Refuses a run that does not fit.
    pub fn check(&self) -> Result<(), Failure> {
        if self.fits {
            return Ok(());
        }
        let advice = match self.changes.first() {
            Some(change) => format!("The least change that fits: {change}"),
            None => NO_CHANGE.to_owned(),
        };
        let remedy = Remedy { advice, ..Remedy::default() };
        Err(Failure::Device(
            Unfit { takes: self.takes, memory: self.memory.clone(), table: String::new(), remedy }.into(),
        ))
    }
}

/// Says first of a plan whether it fits.
pub(super) fn verdict(fits: bool, takes: Takes, memory: &Memory) -> String {
    let (verdict, bytes) = (if fits { "fits" } else { "does not fit" }, human_bytes(takes.bytes));
    let (kernels, host) = (human_bytes(memory.kernels), takes.beside(human_bytes));
    format!("{verdict}: {bytes}, up to {kernels} for kernels{host}, of {}", memory.described())
}

const NO_CHANGE: &str = "Neither smaller micro-batches, --recompute, other formats nor shorter sequences make it \
    fit: use smaller \
                         models, or a GPU with more memory";

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, fits, changes, takes } = self;
        writeln!(f, "{}", verdict(*fits, *takes, memory))?;
        match (fits, changes.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => writeln!(f, "{NO_CHANGE}"),
            (false, false) => {
                writeln!(f, "with one of these it does:")?;
                changes.iter().try_for_each(|change| writeln!(f, "  {}", change.described()))
            }
        }
    }
}
