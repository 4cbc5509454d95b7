//! Agreement of two chips on a kernel or a training run.

use std::fmt;

use serde::Serialize;

/// Whether two chips agree on a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Every output is the same bits.
    Bits,
    /// Outputs differ by less than the kernel may differ from its reference.
    Within {
        /// The largest ‖a − b‖ / ‖b‖, by their sketches; ‖a − b‖ where b is zero.
        distance: f64,
        /// What is allowed there.
        allowed: f64,
    },
    /// Outputs are other bits, and as large: a summary says no more.
    Norms {
        /// The largest difference of ‖a‖ and ‖b‖, as a share of ‖b‖.
        distance: f64,
    },
    /// They do not.
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

/// How much of what is allowed a distance is.
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
