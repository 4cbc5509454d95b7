//! Samples of a timing, of which the median counts.

use super::groups::Group;
use crate::device::session::Session;
use crate::run::failure::Failure;

/// Timings of a group, of which the median counts.
pub(super) const SAMPLES: usize = 5;
/// Runs of a group's launches in one timing.
pub(super) const REPEATS: u32 = 2;

/// Seconds of one launch of a group, measured once: in a sequence of such launches, the handing over from one to the
/// next included.
pub(super) fn sample(session: &mut Session, group: &Group) -> Result<f64, Failure> {
    Ok(session.time(&group.timed_as, REPEATS)? / group.timed_launches() as f64)
}

/// The middle value; of an even number the upper one.
///
/// # Panics
/// If there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
