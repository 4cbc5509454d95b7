//! The length of a run: optimizer steps, or passes over its data.

use std::fmt;

use serde::Serialize;

use super::groups::values::MOST_STEPS;
use super::usage::UsageError;
use crate::inputs::data::Summaries;

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

    /// Returns the length over data of so many sequences: the fewest steps that take each as often as is asked for.
    ///
    /// # Errors
    /// [`UsageError`] of more steps than a run may have.
    pub fn counted(self, sequences: u64, sequences_a_step: u64) -> Result<Self, UsageError> {
        let Self::Epochs { epochs } = self else { return Ok(self) };
        let steps = (epochs * sequences as f64 / sequences_a_step as f64).ceil().max(1.0);
        if steps > MOST_STEPS as f64 {
            return Err(UsageError(format!(
                "--epochs {epochs} of {sequences} sequences are {steps:.3e} steps, and a run has {MOST_STEPS} at \
                most: give a smaller \
                 --epochs"
            )));
        }
        Ok(Self::Counted { epochs, steps: steps as u64 })
    }
}

/// The length of a run beside that of its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Passes {
    steps: u64,
    /// Tokens that a step computes.
    tokens_a_step: u64,
    sequences_a_step: u64,
    /// Sequences of a pass over the data, and passes over each portion of them; none where the end has not been read
    /// yet.
    of_data: Option<(u64, Vec<(String, f64)>)>,
}

impl Passes {
    /// A run of so many steps over data.
    pub fn of(steps: u64, sequences_a_step: u64, seq_len: u32, data: Option<&Summaries>) -> Self {
        let passes = |data: &Summaries| {
            let drawn = data.divide(steps as f64 * sequences_a_step as f64);
            let each =
                drawn.zip(&data.0).map(|((portion, drawn), (_, of))| (portion.to_string(), drawn / of.chunks as f64));
            (data.total().chunks, each.collect())
        };
        let tokens_a_step = sequences_a_step * u64::from(seq_len);
        Self { steps, tokens_a_step, sequences_a_step, of_data: data.map(passes) }
    }

    /// Returns what a user should know of data that are too few.
    pub fn notes(&self) -> Vec<String> {
        let Self { sequences_a_step: step, of_data, .. } = self;
        let each = of_data.iter().flat_map(|(_, each)| each);
        let many = each.filter(|(_, passes)| *passes > MANY_PASSES).map(|(portion, passes)| {
            format!(
                "the run takes {portion} {passes:.0} times, and above {MANY_PASSES:.0} a model learns by heart: give \
                more data, fewer \
                 --steps, or --epochs"
            )
        });
        let few = of_data.as_ref().filter(|(sequences, _)| sequences < step).map(|(sequences, _)| {
            format!(
                "a step takes {step} sequences and the data have {sequences}: it takes some of them more than once; \
                give a smaller \
                 --batch-size or --grad-accum"
            )
        });
        many.chain(few).collect()
    }
}

impl fmt::Display for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} tokens", self.steps, self.tokens_a_step)?;
        for (index, (portion, passes)) in self.of_data.iter().flat_map(|(_, each)| each).enumerate() {
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
        let steps = |epochs, sequences| Length::Epochs { epochs }.counted(sequences, 8).unwrap().steps();
        assert_eq!([steps(1.0, 16), steps(1.0, 17), steps(0.5, 17), steps(3.0, 17)], [2, 3, 2, 7]);
        assert_eq!(steps(0.001, 17), 1);
        assert_eq!(Length::Steps { steps: 5 }.counted(1, 1).unwrap(), Length::Steps { steps: 5 });
        let refused = Length::Epochs { epochs: 1e9 }.counted(1 << 20, 1).unwrap_err().to_string();
        assert!(refused.ends_with("2147483647 at most: give a smaller --epochs"), "{refused}");
    }

    #[test]
    fn passes_are_said_and_too_many_noted() {
        let portion = |name: Option<&str>, share| Portion { name: name.map(PathBuf::from), share, files: (0, 1) };
        let summary = |chunks, tokens| Summary { chunks, tokens, ..Summary::default() };
        let of = |steps, sequences: Option<u64>| {
            let data = sequences.map(|chunks| Summaries(vec![(portion(None, 1.0), summary(chunks, 129 * chunks))]));
            Passes::of(steps, 4, 128, data.as_ref())
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
        let mixed = Passes::of(75, 4, 128, Some(&Summaries(vec![a, b])));
        assert_eq!(mixed.to_string(), "75 x 512 tokens = 2.00 passes over a, 10.00 passes over b");
    }
}
