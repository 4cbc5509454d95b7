//! Names of the phases.

use crate::staged::{CERTIFY, name_of};

/// Runs once, before the weights arrive: clears the optimizer's state, padding included.
pub const CLEAR: &str = "clear";
/// Runs after master weights have arrived: casts the student's weights to the precision of the run.
pub const CAST: &str = "cast";
/// Forward and backward pass of one micro-batch.
pub const MICRO: &str = "micro";
/// [`MICRO`] of a rank's last micro-batch of a step, with several ranks: gradients are sent as they become complete.
pub const LAST: &str = "last";
/// Begins the name of the phase in which a teacher computes several micro-batches at a time: [`pass_phase`].
pub(crate) const PASS: &str = "pass.";
/// Norm, clip and AdamW.
pub const UPDATE: &str = "update";
/// Losses of the teacher alone on one micro-batch, if there is one.
pub const TEACHER: &str = "teacher";
/// Sends each rank's updated pieces to all of them, beside the next step's teacher.
pub const GATHER: &str = "gather";
/// Runs behind the last step: collects the master weights of all ranks where gradients were, of a student whose working
/// copy has other values.
pub const MASTERS: &str = "masters";

/// Returns the phase in which a teacher computes so many micro-batches.
pub fn pass_phase(micros: u32) -> String {
    format!("{PASS}{micros}")
}

/// Returns the phase of micro-batches of one of several teachers, by its number: that of the first has no number.
pub fn of_teacher(phase: &str, number: usize) -> String {
    if number == 0 { phase.to_owned() } else { format!("{phase}.{number}") }
}

/// Returns the phase that measures the distance of a teacher, by its number, from the dense one.
pub fn certify_phase(number: usize) -> String {
    name_of(CERTIFY, &of_teacher("teacher", number))
}
