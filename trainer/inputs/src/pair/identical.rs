//! Whether the models of a pair are one.

use std::path::Path;

use precast_plan::Parameters;

use super::check::both;
use crate::checkpoint::{Checkpoint, CheckpointError, Scratch, Weights};

/// Returns the error of a pair that computes the same.
pub fn nothing_to_learn(teacher: &Checkpoint, student: &Checkpoint) -> CheckpointError {
    CheckpointError::Wrong(format!(
        "{} hold the same weights: the student has nothing to learn. Name another model, or pass --allow-identical",
        both(teacher, student)
    ))
}

/// True if two paths lead to one place.
pub fn same_path(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Whether two models compute the same: one shape, and every weight of the same value. Small parameters are compared
/// first: models that differ are told apart by a few of them.
///
/// # Errors
/// [`CheckpointError`] where a weight cannot be read.
pub fn identical(teacher: &Checkpoint, student: &Checkpoint) -> Result<bool, CheckpointError> {
    if teacher.config() != student.config() {
        return Ok(false);
    }
    if same_path(teacher.path(), student.path()) {
        return Ok(true);
    }
    let mut parameters = Parameters::new(teacher.config()).list;
    parameters.sort_by_key(|parameter| parameter.elems());
    let [mut one, mut other] = [Scratch::default(), Scratch::default()];
    for parameter in &parameters {
        let format = precast_kernels::Dtype::F32.into();
        if teacher.read(parameter, format, &mut one)? != student.read(parameter, format, &mut other)? {
            return Ok(false);
        }
    }
    Ok(true)
}
