//! Verdict on a kernel or a training run of two chips.

use std::fmt;

use serde::Serialize;

/// Agreement of two chips on a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Every output is bit-identical.
    Bits,
    /// Outputs differ by less than the kernel's tolerance.
    Within {
        /// Largest ‖a − b‖ / ‖b‖, by sketches; ‖a − b‖ if b is zero.
        distance: f64,
        /// Tolerance at that output.
        allowed: f64,
    },
    /// Outputs differ in bits but agree in norm, which is all that a summary records.
    Norms {
        /// Largest difference of ‖a‖ and ‖b‖, relative to ‖b‖.
        distance: f64,
    },
    /// The chips disagree.
    Apart { reason: String },
}

impl Verdict {
    /// Returns a disagreement and its reason.
    pub(super) fn apart(reason: impl Into<String>) -> Self {
        Self::Apart { reason: reason.into() }
    }

    /// Judges a distance of what is said to differ.
    pub(super) fn within(what: &str, distance: f64, allowed: f64) -> Self {
        match distance <= allowed {
            true => Self::Within { distance, allowed },
            false => Self::apart(format!("{what} by {distance:.1e}, at most {allowed:.1e}")),
        }
    }

    /// Returns the worse of two.
    pub(super) fn and(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(&self) -> (u8, f64) {
        match self {
            Self::Bits => (0, 0.0),
            Self::Within { distance, allowed } => (1, distance / allowed),
            Self::Norms { distance } => (2, *distance),
            Self::Apart { .. } => (3, 0.0),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits => write!(f, "bits   the same"),
            Self::Within { distance, allowed } => write!(f, "within {distance:.1e} of at most {allowed:.1e}"),
            Self::Norms { distance } => write!(f, "norms  {distance:.1e} apart, other bits"),
            Self::Apart { reason } => write!(f, "APART  {reason}"),
        }
    }
}
