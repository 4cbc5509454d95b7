//! Lengths of micro-batches: all have as many tokens.

use crate::recipe::Recipe;

/// Length of the sequences of a micro-batch, as a part of the recipe's. Parts have as many times more sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SequenceLength {
    Whole,
    Half,
    Quarter,
}

impl SequenceLength {
    /// All, the longest first.
    pub const ALL: [Self; 3] = [Self::Whole, Self::Half, Self::Quarter];

    /// Parts that the recipe's length is divided into.
    pub fn parts(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Half => 2,
            Self::Quarter => 4,
        }
    }

    /// Returns those that a recipe's length can be divided into.
    pub fn of(recipe: &Recipe) -> impl Iterator<Item = Self> + use<> {
        let seq_len = recipe.seq_len;
        Self::ALL.into_iter().filter(move |length| seq_len.is_multiple_of(length.parts()))
    }

    /// Returns sequences and tokens of each, where the recipe has so many.
    pub fn shape(self, (batch, seq_len): (u32, u32)) -> (u32, u32) {
        (batch * self.parts(), seq_len / self.parts())
    }

    /// Returns the name of a phase of sequences of this length: `micro`, `micro.2`, `micro.4`.
    pub fn phase(self, phase: &str) -> String {
        match self {
            Self::Whole => phase.to_owned(),
            Self::Half | Self::Quarter => format!("{phase}.{}", self.parts()),
        }
    }
}
