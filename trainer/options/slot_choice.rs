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

    /// Returns the numbers of slots to try for so many sequences, from [`Self::most`] down.
    pub(crate) fn tries(self, sequences: u64) -> impl Iterator<Item = u32> {
        let most = self.most(sequences);
        let smaller = BUCKETS.into_iter().rev().chain([32, 16, 8, 4, 2, 1]);
        std::iter::once(most).chain(smaller.filter(move |count| *count < most))
    }
}

/// Slots that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotsUnfit {
    pub asked: u32,
    /// The most that fit: 0 where not even one does.
    pub most: u32,
}

impl SlotsUnfit {
    /// Says that so many slots of `seq_len` tokens do not fit, and how many do by `option`; where none does, what else
    /// may help.
    pub fn message(self, seq_len: u32, option: &str, otherwise: &str) -> String {
        let Self { asked, most } = self;
        let remedy = match most {
            0 => format!("not even one does{otherwise}"),
            most => format!("{option} {most} does"),
        };
        format!("{asked} slots of {seq_len} tokens do not fit; {remedy}")
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
    fn fewer_slots_are_tried_after_more() {
        let tries = |choice: SlotChoice, sequences| choice.tries(sequences).collect::<Vec<u32>>();
        assert_eq!(tries(SlotChoice::Auto, 300), [300, 256, 128, 64, 32, 16, 8, 4, 2, 1]);
        assert_eq!((tries(SlotChoice::Auto, 1), tries(SlotChoice::Auto, 700)[0]), (vec![1], 512));
    }
}
