//! In which forms the teacher's weights can live on the device, and what a run would take with each.

use std::fmt::{Display, from_fn};

use precast_plan::{Formats, human_bytes};
use serde::Serialize;

use super::Target;
use super::room::{Room, Takes};
use crate::options::{RunConfig, WeightFormat};
use crate::programs::failure::Failure;

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
    /// Lowers a run for a teacher that is in memory for itself, whose file has its matrices in these formats: it may also be rounded to 8 bits. Without
    /// one there is a single form.
    pub fn of(
        config: &RunConfig,
        own_teacher: Option<&Formats>,
        target: &Target,
        takes: impl Fn(&Formats) -> Result<Takes, Failure>,
    ) -> Result<Self, Failure> {
        let of = |format, formats: &Formats| Ok::<_, Failure>(Form { format, takes: takes(formats)? });
        let mut choices = vec![of(WeightFormat::Bf16, &Formats::dense())?];
        if let Some(formats) = own_teacher.filter(|formats| !formats.is_dense()) {
            choices.push(of(WeightFormat::Stored, formats)?);
        }
        // Weights that the student has, too, are in its form, whatever is asked for.
        let asked = config.teacher_format.filter(|_| own_teacher.is_some()).unwrap_or(WeightFormat::Bf16);
        let planned = choose(asked, &choices, target);
        if own_teacher.is_some() {
            match of(WeightFormat::Int8, &Formats::int8()) {
                Ok(int8) => choices.push(int8),
                // Nothing computes it.
                Err(_) if planned != WeightFormat::Int8 => {}
                Err(failure) => return Err(failure),
            }
        }
        let mut forms = Self { chosen: None, choices, planned };
        forms.chosen = forms.takes().fits(target.room.as_ref()).then_some(planned);
        Ok(forms)
    }

    /// True if the run fits in the form that is planned.
    pub fn fits(&self) -> bool {
        self.chosen.is_some()
    }

    /// Returns what the run takes in the form that is planned.
    pub fn takes(&self) -> Takes {
        let planned = self.choices.iter().find(|form| form.format == self.planned);
        planned.expect("a form is planned that is known").takes
    }

    /// As people read them, beside the memory that there is.
    pub fn table(&self, room: Option<&Room>) -> impl Display {
        from_fn(move |f| {
            writeln!(f, "--teacher-format       takes")?;
            for Form { format, takes: Takes { bytes, .. } } in &self.choices {
                let chosen = if Some(*format) == self.chosen { "  (chosen)" } else { "" };
                writeln!(f, "  {:<14} {:>12}  {bytes:>16} bytes{chosen}", format.to_string(), human_bytes(*bytes))?;
            }
            let exact = self.choices.iter().filter(|form| form.format.is_exact()).count();
            match room {
                _ if exact < 2 => writeln!(f, "  auto: bf16; int8 gives other bits"),
                Some(room) => writeln!(f, "  auto: the first that fits; {room}"),
                None => writeln!(
                    f,
                    "  auto: the first that fits into what is free on the device of a run; this plan is for none"
                ),
            }?;
            match self.chosen {
                Some(_) => Ok(()),
                None => writeln!(f, "  no form is chosen: {}, which all else here is of, does not fit", self.planned),
            }
        })
    }
}

/// The form that is asked for. `auto` is the first that fits, or takes least, of the memory that there is; without any it is the
/// first.
fn choose(asked: WeightFormat, forms: &[Form], target: &Target) -> WeightFormat {
    let (first, last) = (forms[0].format, forms[forms.len() - 1].format);
    match asked {
        WeightFormat::Auto => {
            forms.iter().find(|form| form.takes.fits(target.room.as_ref())).map_or(last, |form| form.format)
        }
        WeightFormat::Stored => last,
        WeightFormat::Int8 => asked,
        WeightFormat::Bf16 => first,
    }
}
