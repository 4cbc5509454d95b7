//! In which forms the teacher's weights can live on the device, and what a run would take with each.

use std::fmt::{Display, from_fn};

use precast_plan::{PlanError, TrainingPlan, human_bytes};
use serde::Serialize;

use crate::device::fit::{Choice, Fit, compare, forms};
use crate::device::memory::{Memory, Takes};
use crate::device::training::Training;
use crate::options::WeightFormat;

/// A form of the teacher's weights, and what a run takes with it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Form {
    pub format: WeightFormat,
    #[serde(flatten)]
    pub takes: Takes,
}

/// The forms that a teacher's weights can have, and the one that is planned.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Forms {
    /// The form that a run would take; none where it does not fit.
    chosen: Option<WeightFormat>,
    /// The one that takes most first, but for 8 bits, which stand last.
    pub choices: Vec<Form>,
    #[serde(skip)]
    pub planned: WeightFormat,
}

impl Forms {
    /// Lists the forms of a teacher that is in memory for itself, whose file has its matrices in these formats: it may
    /// also be rounded to 8 bits, which not every run computes. Without one there is a single form.
    pub fn of(run: &Training<'_>, fit: &Fit<TrainingPlan>) -> Result<Self, PlanError> {
        let planned = fit.choice.format;
        let of = |format| match format == planned {
            true => Ok(Form { format, takes: fit.takes }),
            false => {
                let other = compare(run, Choice { format, ..fit.choice }, fit.memory.as_ref())?;
                Ok(Form { format, takes: other.takes })
            }
        };
        let mut choices = match run.own_teacher() {
            None => vec![of(planned)?],
            Some(stored) => forms(WeightFormat::Auto, stored).into_iter().map(of).collect::<Result<_, PlanError>>()?,
        };
        if run.own_teacher().is_some() {
            choices.extend(of(WeightFormat::Int8));
        }
        Ok(Self { chosen: fit.is_within().then_some(planned), choices, planned })
    }

    /// As people read them, beside the memory that there is.
    pub fn table(&self, memory: Option<&Memory>) -> impl Display {
        from_fn(move |f| {
            writeln!(f, "--teacher-format       takes")?;
            for Form { format, takes: Takes { bytes, .. } } in &self.choices {
                let chosen = if Some(*format) == self.chosen { "  (chosen)" } else { "" };
                writeln!(f, "  {:<14} {:>12}  {bytes:>16} bytes{chosen}", format.to_string(), human_bytes(*bytes))?;
            }
            let exact = self.choices.iter().filter(|form| form.format.is_exact()).count();
            match memory {
                _ if exact < 2 => writeln!(f, "  auto: bf16; int8 gives other bits"),
                Some(memory) => writeln!(f, "  auto: the first that fits; {memory}"),
                None => writeln!(
                    f,
                    "  auto: the first that fits into what is free on the device of a run; this plan has none"
                ),
            }?;
            match self.chosen {
                Some(_) => Ok(()),
                None => writeln!(f, "  no form is chosen: {}, which all else here assumes, does not fit", self.planned),
            }
        })
    }
}
