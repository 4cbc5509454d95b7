//! The length of a run: optimizer steps, or passes over its data.

use std::fmt;

use serde::Serialize;

use super::groups::values::MOST_STEPS;
use super::usage::UsageError;
use crate::inputs::data::{Packing, Places, Summaries};

/// Passes over the data above which a run gets a note: a model of billions of parameters learns its data by heart.
const MANY_PASSES: f64 = 20.0;

/// The length of a run, as it is asked for or, once its data are counted, as it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Length {
    Steps { steps: u64 },
    Epochs { epochs: f64 },
    Counted { epochs: f64, steps: u64 },
}

impl Length {
    /// Optimizer steps.
    ///
    /// # Panics
    /// If they follow from data that are not counted yet.
    pub fn steps(self) -> u64 {
        match self {
            Self::Steps { steps } | Self::Counted { steps, .. } => steps,
            Self::Epochs { .. } => unreachable!("data are counted before the first step"),
        }
    }

    /// True if the steps follow from data that are not counted yet.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Epochs { .. })
    }

    /// Returns the length over data that fill so many places: the fewest steps that take each row as often as is asked
    /// for.
    ///
    /// # Errors
    /// [`UsageError`] of more steps than a run may have.
    pub fn counted(self, places: u64, places_a_step: u64) -> Result<Self, UsageError> {
        let Self::Epochs { epochs } = self else { return Ok(self) };
        let steps = (epochs * places as f64 / places_a_step as f64).ceil().max(1.0);
        if steps > MOST_STEPS as f64 {
            return Err(UsageError(format!(
                "--epochs {epochs} of these data are {steps:.3e} steps, and a run has {MOST_STEPS} at most: give a \
                smaller --epochs"
            )));
        }
        Ok(Self::Counted { epochs, steps: steps as u64 })
    }
}

/// The length of a run beside that of its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Passes {
    steps: u64,
    places_a_step: u64,
    of_micro: Places,
    /// A pass over the data; none where the end has not been read yet.
    of_data: Option<Pass>,
}

/// A pass over the data.
#[derive(Clone, Debug, PartialEq)]
struct Pass {
    places: u64,
    rows: u64,
    /// Passes of the run over each portion.
    each: Vec<(String, f64)>,
    fill: f64,
}

impl Passes {
    /// A run of so many steps over data.
    pub fn of(steps: u64, places_a_step: u64, of_micro: Places, data: Option<&Summaries>) -> Self {
        let pass = |data: &Summaries| {
            let each = data.passes(steps as f64 * places_a_step as f64);
            let total = data.total();
            let each = each.map(|(portion, passes)| (portion.to_string(), passes)).collect();
            Pass { places: total.places, rows: total.chunks, each, fill: data.fill() }
        };
        Self { steps, places_a_step, of_micro, of_data: data.map(pass) }
    }

    /// Returns what a user should know of data that are too few.
    pub fn notes(&self) -> Vec<String> {
        let Self { places_a_step: step, of_micro, of_data, .. } = self;
        let each = of_data.iter().flat_map(|pass| &pass.each);
        let many = each.filter(|(_, passes)| *passes > MANY_PASSES).map(|(portion, passes)| {
            format!(
                "the run takes {portion} {passes:.0} times, and above {MANY_PASSES:.0} a model learns by heart: give \
                more data, fewer \
                 --steps, or --epochs"
            )
        });
        let few = of_data.as_ref().filter(|pass| pass.places < *step).map(|pass| {
            let (takes, have) = match of_micro.packing {
                Packing::None => {
                    (format!("{} sequences", step / u64::from(of_micro.seq_len)), format!("have {}", pass.rows))
                }
                Packing::Rows | Packing::Documents => (format!("{step} places"), format!("fill {}", pass.places)),
            };
            format!(
                "a step takes {takes} and the data {have}: it takes some of them more than once; give a smaller \
                 --batch-size or --grad-accum"
            )
        });
        many.chain(few).collect()
    }
}

impl fmt::Display for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, places_a_step: step, of_micro, of_data } = self;
        match (of_micro.packing, of_data) {
            (Packing::None, _) => write!(f, "{steps} x {step} tokens")?,
            (_, None) => write!(f, "{steps} x {step} places")?,
            (_, Some(Pass { places, rows, fill, .. })) => {
                let rows = *rows as f64 * *step as f64 / *places as f64;
                write!(f, "{steps} x {step} places, {:.1} % filled by about {rows:.0} rows", 100.0 * fill)?;
            }
        }
        for (index, (portion, passes)) in of_data.iter().flat_map(|pass| &pass.each).enumerate() {
            let (before, digits) = (if index == 0 { " =" } else { "," }, if *passes < 0.1 { 4 } else { 2 });
            write!(f, "{before} {passes:.digits$} passes over {portion}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::inputs::data::{Portion, Summary};

    #[test]
    fn epochs_are_the_fewest_steps_that_take_all_data_as_often() {
        let steps = |epochs, sequences: u64| Length::Epochs { epochs }.counted(5 * sequences, 5 * 8).unwrap().steps();
        assert_eq!([steps(1.0, 16), steps(1.0, 17), steps(0.5, 17), steps(3.0, 17)], [2, 3, 2, 7]);
        assert_eq!(steps(0.001, 17), 1);
        assert_eq!(Length::Steps { steps: 5 }.counted(1, 1).unwrap(), Length::Steps { steps: 5 });
        let refused = Length::Epochs { epochs: 1e9 }.counted(1 << 20, 1).unwrap_err().to_string();
        assert!(refused.ends_with("2147483647 at most: give a smaller --epochs"), "{refused}");
    }

    #[test]
    fn passes_are_said_and_too_many_noted() {
        let portion = |name: Option<&str>, share| Portion { name: name.map(PathBuf::from), share, files: (0, 1) };
        let summary = |chunks, tokens| Summary { chunks, tokens, places: 128 * chunks, ..Summary::default() };
        let none = Places::new(4, 128, Packing::None);
        let of = |steps, sequences: Option<u64>| {
            let data = sequences.map(|chunks| Summaries(vec![(portion(None, 1.0), summary(chunks, 129 * chunks))]));
            Passes::of(steps, 512, none, data.as_ref())
        };
        assert_eq!(of(40, Some(410)).to_string(), "40 x 512 tokens = 0.39 passes over the data");
        assert_eq!(of(1, Some(100)).to_string(), "1 x 512 tokens = 0.0400 passes over the data");
        assert_eq!(of(40, None).to_string(), "40 x 512 tokens");
        assert_eq!(of(40, None).notes(), [""; 0]);
        assert_eq!(of(20, Some(4)).notes(), [""; 0]);
        let notes = of(21, Some(3)).notes();
        assert!(notes[0].starts_with("the run takes the data 28 times"), "{notes:?}");
        assert!(notes[1].starts_with("a step takes 4 sequences and the data have 3"), "{notes:?}");
        // Sequences of b are twice as long: of 300, each source gives 100 and 200 tokens' worth.
        let (a, b) = ((portion(Some("a"), 0.5), summary(100, 1000)), (portion(Some("b"), 0.5), summary(10, 200)));
        let mixed = Passes::of(75, 512, none, Some(&Summaries(vec![a, b])));
        assert_eq!(mixed.to_string(), "75 x 512 tokens = 2.00 passes over a, 10.00 passes over b");
        // Packed, the same rows fill less.
        let data = Summaries(vec![(portion(None, 1.0), Summary { places: 1000, ..summary(100, 1060) })]);
        let packed = |steps| Passes::of(steps, 512, Places { packing: Packing::Rows, ..none }, Some(&data));
        assert_eq!(packed(2).to_string(), "2 x 512 places, 96.0 % filled by about 51 rows = 1.02 passes over the data");
        assert_eq!(packed(2).notes(), [""; 0]);
        let few = Passes::of(1, 1024, packed(1).of_micro, Some(&data)).notes();
        assert!(few[0].starts_with("a step takes 1024 places and the data fill 1000: it takes"), "{few:?}");
    }
}
