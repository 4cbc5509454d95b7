//! In which forms the teacher's weights can live on the device, and what a run would take with each.

use precast_plan::Formats;
use precast_plan::memory::human_bytes;
use precast_system::say;
use serde::Serialize;

use super::Target;
use super::room::Takes;
use crate::options::WeightFormat;
use crate::programs::failure::Failure;

/// What a run would take with the teacher's weights in one form.
#[derive(Serialize)]
pub(super) struct Form {
    #[serde(serialize_with = "crate::base::record_text::display")]
    pub format: WeightFormat,
    /// Of the device.
    pub bytes: u64,
    #[serde(skip)]
    pub takes: Takes,
}

/// The forms that a teacher's weights can have, and the one that is planned.
pub(super) struct Forms {
    /// The one that takes most first, but for 8 bits, which stand last.
    pub all: Vec<Form>,
    pub planned: WeightFormat,
}

impl Forms {
    /// Of a teacher whose file has its matrices in `formats`. One that is in memory for itself may also be rounded to 8 bits.
    pub fn of(
        asked: WeightFormat,
        formats: &Formats,
        is_own: bool,
        target: &Target,
        takes: impl Fn(&Formats) -> Result<Takes, Failure>,
    ) -> Result<Self, Failure> {
        let of = |format, formats: &Formats| {
            let takes = takes(formats)?;
            Ok::<_, Failure>(Form { format, bytes: takes.device, takes })
        };
        let mut all = vec![of(WeightFormat::Bf16, &Formats::dense())?];
        if !formats.is_dense() {
            all.push(of(WeightFormat::Stored, formats)?);
        }
        let planned = choose(asked, &all, target);
        if is_own {
            match of(WeightFormat::Int8, &Formats::int8()) {
                Ok(int8) => all.push(int8),
                // Nothing computes it.
                Err(_) if planned != WeightFormat::Int8 => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Self { all, planned })
    }

    /// What the run takes in the form that is planned.
    pub fn takes(&self) -> Takes {
        let planned = self.all.iter().find(|form| form.format == self.planned);
        planned.expect("a form is planned that is known").takes
    }

    /// The form that a run would take; none where it does not fit.
    pub fn chosen(&self, target: &Target) -> Option<WeightFormat> {
        self.takes().fits(target).then_some(self.planned)
    }

    pub fn print(&self, target: &Target) {
        if self.all.len() < 2 {
            return;
        }
        say!("\n--teacher-format       takes");
        let chosen = self.chosen(target);
        for Form { format, bytes, .. } in &self.all {
            let chosen = if Some(*format) == chosen { "  (chosen)" } else { "" };
            say!("  {:<14} {:>12}  {bytes:>16} bytes{chosen}", format.to_string(), human_bytes(*bytes));
        }
        let exact = self.all.iter().filter(|form| form.format.is_exact()).count();
        match &target.room {
            _ if exact < 2 => say!("  auto: bf16; int8 gives other bits"),
            Some(room) => say!("  auto: the first that fits; {room}"),
            None => say!("  auto: the first that fits into what is free on the device of a run; this plan is for none"),
        }
        if chosen.is_none() {
            say!("  no form is chosen: {}, which all else here is of, does not fit", self.planned);
        }
    }
}

/// The form that is asked for. `auto` is the first that fits, or takes least, of the memory that there is; without any it is the
/// first.
fn choose(asked: WeightFormat, forms: &[Form], target: &Target) -> WeightFormat {
    let (first, last) = (forms[0].format, forms[forms.len() - 1].format);
    match asked {
        WeightFormat::Auto => forms.iter().find(|form| form.takes.fits(target)).map_or(last, |form| form.format),
        WeightFormat::Stored => last,
        WeightFormat::Int8 => asked,
        WeightFormat::Bf16 => first,
    }
}
