//! Options that a cached teacher does not go with.

use precast_plan::{Gemm, Objective};

use super::groups::Options;
use super::usage::UsageError;
use crate::inputs::teacher_cache::Compact;

impl Options {
    /// Refuses what a cached teacher does not go with.
    ///
    /// # Errors
    /// [`UsageError`] that names the option.
    pub(super) fn check_cached(&self) -> Result<(), UsageError> {
        if self.models.teacher_cache.is_empty() {
            return Ok(());
        }
        // Among several teachers others may have weights.
        let has_name = self.models.teacher_cache.iter().any(|cache| cache.name.is_some());
        let is_alone = self.models.teacher.is_empty() || !has_name;
        let of_weights = self.teaching.first_of_weights().filter(|_| is_alone);
        let (option, why) = match of_weights {
            Some(option) => (option, "from which the teacher is read in place of being computed"),
            None if self.on_policy.on_policy.is_some() => (
                "--on-policy".to_owned(),
                "which holds what the teacher says of data, and not of what the student writes",
            ),
            None if self.writes()? => {
                return Err(UsageError(
                    "held-out prompts are completed by the student, and a cache holds what the teacher says of data: \
                    give --eval-data \
                     with completions, or --teacher in place of --teacher-cache"
                        .to_owned(),
                ));
            }
            None if self.arithmetic.gemm == Gemm::Cublas => (
                "--gemm cublas".to_owned(),
                "which the bundle's kernels fill: rows of cuBLASLt depend on how many there are",
            ),
            None => return Ok(()),
        };
        Err(UsageError(format!(
            "{option} cannot be combined with --teacher-cache, {why}: leave it out, or give --teacher in place of \
            --teacher-cache"
        )))
    }
}

/// Compares the temperatures of a compact cache and of a run. If they differ, returns the cache's, the options that
/// make a cache for this run, and the run's.
pub(super) fn other_temperature(cache: Compact, objective: Objective) -> Option<[String; 3]> {
    let Objective::Distill { temperature, .. } = objective else { return None };
    let is = format!("{temperature} --keep-logits {} --student STUDENT", cache.keep_logits);
    (cache.temperature != temperature).then(|| [cache.temperature.to_string(), is, temperature.to_string()])
}
