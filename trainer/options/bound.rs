//! A bound that an option sets, or takes away.

use std::fmt;

/// At most so much, or any amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<T> {
    None,
    Most(T),
}

impl<T> Bound<T> {
    /// The bound of a text: `none`, or what was parsed of it.
    pub fn of(text: &str, parsed: Option<T>) -> Option<Self> {
        if text == "none" { Some(Self::None) } else { parsed.map(Self::Most) }
    }
}

impl<T: fmt::Display> fmt::Display for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Most(most) => most.fmt(f),
        }
    }
}
