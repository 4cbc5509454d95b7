//! Completions that are written at a time.

use std::fmt;
use std::str::FromStr;

use precast_plan::decoding::{BUCKETS, MOST_SLOTS};
use serde::{Serialize, Serializer};

/// Completions at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChoice {
    /// As many as there is room for.
    Auto,
    Count(u32),
}

impl SlotChoice {
    /// Returns the slots for so many sequences, at most.
    pub(crate) fn most(self, sequences: u64) -> u32 {
        match self {
            Self::Auto => sequences.min(MOST_SLOTS.into()) as u32,
            Self::Count(count) => count,
        }
    }

    /// Returns the numbers of slots for so many sequences, the largest first: one, if it is given.
    pub(crate) fn tries(self, sequences: u64) -> Vec<u32> {
        match self {
            Self::Count(count) => vec![count],
            Self::Auto => Self::up_to(self.most(sequences)),
        }
    }

    /// Returns numbers of slots to try, from `most` down.
    pub(crate) fn up_to(most: u32) -> Vec<u32> {
        let smaller = BUCKETS.iter().rev().copied().chain([32, 16, 8, 4, 2, 1]);
        std::iter::once(most).chain(smaller.filter(|count| *count < most)).collect()
    }
}

impl FromStr for SlotChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(count @ 1..=MOST_SLOTS) => Ok(Self::Count(count)),
            _ => Err(format!("expected auto or a number from 1 to {MOST_SLOTS}")),
        }
    }
}

impl fmt::Display for SlotChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl Serialize for SlotChoice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_slots_as_fit_are_taken() {
        assert_eq!(SlotChoice::up_to(300), [300, 256, 128, 64, 32, 16, 8, 4, 2, 1]);
        assert_eq!((SlotChoice::up_to(1), SlotChoice::Auto.tries(700)[0]), (vec![1], 512));
        assert_eq!(SlotChoice::Count(7).tries(3), [7]);
    }
}
