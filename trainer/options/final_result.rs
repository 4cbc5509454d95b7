//! `--final`: selects the step whose weights a run leaves.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The steps whose weights a run leaves as its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Final {
    /// The last step.
    Last,
    /// The step with the lowest held-out loss.
    Best,
    /// The last step, and that with the lowest held-out loss beside it.
    Both,
}

impl Final {
    pub const ALL: [Self; 3] = [Self::Last, Self::Best, Self::Both];

    /// True if the step with the lowest held-out loss is among them.
    pub fn has_best(self) -> bool {
        self != Self::Last
    }
}

impl fmt::Display for Final {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Final {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| format!("unknown result `{text}`: last, best or both"))
    }
}
