//! Learning rate over a run.

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
        f.write_str(match self {
            Schedule::Constant => "constant",
            Schedule::Cosine => "cosine",
        })
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|schedule| schedule.to_string() == text)
            .ok_or_else(|| format!("unknown schedule `{text}`: constant or cosine"))
    }
}

impl Schedule {
    /// The learning rate of step `step` (from 0) of `steps`, the first `warmup` of which rise linearly:
    /// `peak (i + 1) / w`, then `peak`, or `peak / 2 (1 + cos(pi (i - w) / (N - w)))`.
    pub fn lr(self, peak: f64, step: u64, warmup: u64, steps: u64) -> f64 {
        if step < warmup {
            return peak * (step + 1) as f64 / warmup as f64;
        }
        match self {
            Schedule::Constant => peak,
            Schedule::Cosine => {
                let share = (step - warmup) as f64 / (steps.saturating_sub(warmup)).max(1) as f64;
                peak / 2.0 * (1.0 + (std::f64::consts::PI * share).cos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_rises_and_cosine_falls() {
        let lr = |schedule: Schedule, step| schedule.lr(1.0, step, 4, 12);
        assert_eq!([0, 1, 2, 3].map(|step| lr(Schedule::Cosine, step)), [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(lr(Schedule::Cosine, 4), 1.0);
        assert!((lr(Schedule::Cosine, 8) - 0.5).abs() < 1e-15);
        assert!(lr(Schedule::Cosine, 11) > 0.0 && lr(Schedule::Cosine, 11) < 0.05);
        assert_eq!(lr(Schedule::Constant, 11), 1.0);
        assert_eq!(Schedule::Cosine.lr(1.0, 0, 0, 10), 1.0);
    }
}
