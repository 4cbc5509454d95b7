//! The shape of the learning rate over a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The shape of the learning rate after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Stays at its peak.
    Constant,
    /// Falls to zero along half a cosine.
    Cosine,
}

impl Schedule {
    pub const ALL: [Self; 2] = [Self::Constant, Self::Cosine];
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|schedule| schedule.to_string() == text);
        found.ok_or_else(|| format!("unknown schedule `{text}`: constant or cosine"))
    }
}
