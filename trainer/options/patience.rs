//! The time for which a device may do nothing.

use std::time::Duration;

use super::bound::Bound;

/// Time for which the device may do nothing that can be seen, as a run is told: seconds.
pub type Patience = Bound<u64>;

/// Of a run that is told nothing: the least, and as a multiple of the longest step.
const LEAST: Duration = Duration::from_secs(120);
const STEPS: u32 = 50;
/// Far more than anybody waits, and far less than clocks count.
const MOST_SECONDS: u64 = 1 << 32;

/// The patience of a run that is told nothing, by its longest step.
pub(crate) fn default(longest_step: Duration) -> Duration {
    LEAST.max(longest_step.saturating_mul(STEPS))
}

pub(crate) fn seconds(text: &str) -> Result<Patience, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
    let wrong = || format!("expected seconds, a whole number from 1 to {MOST_SECONDS}, or none");
    Bound::of(text, seconds).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_seconds_or_none() {
        for text in ["none", "1", "4294967296"] {
            assert_eq!(seconds(text).unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "1.5", "None", "4294967297", "18446744073709551616"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn by_default_a_run_waits_for_fifty_of_its_longest_steps() {
        let seconds = |step| default(Duration::from_secs_f64(step)).as_secs();
        assert_eq!([seconds(0.0), seconds(2.4), seconds(9.0)], [120, 120, 450]);
    }
}
