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
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (apart @ Self::Apart { .. }, _) | (_, apart @ Self::Apart { .. }) => apart,
            (Self::Norms { distance: a }, Self::Norms { distance: b }) => Self::Norms { distance: a.max(b) },
            (norms @ Self::Norms { .. }, _) | (_, norms @ Self::Norms { .. }) => norms,
            (Self::Bits, other) | (other, Self::Bits) => other,
            (a @ Self::Within { .. }, b @ Self::Within { .. }) => {
                if share(&a) >= share(&b) {
                    a
                } else {
                    b
                }
            }
        }
    }
}

/// Returns the distance as a share of the tolerance.
fn share(verdict: &Verdict) -> f64 {
    match verdict {
        Verdict::Within { distance, allowed } => distance / allowed,
        _ => 0.0,
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
