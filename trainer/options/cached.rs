//! Options that a cached teacher does not go with.

use precast_plan::{Gemm, Objective};

use super::groups::Options;
use super::usage::{UsageError, first_asked};
use crate::inputs::teacher_cache::Compact;

impl Options {
    /// Refuses what a cached teacher does not go with.
    ///
    /// # Errors
    /// [`UsageError`] that names the option.
    pub(super) fn check_cached(&self) -> Result<(), UsageError> {
        if self.models.teacher_cache.is_none() {
            return Ok(());
        }
        let refuse = |message: String| Err(UsageError(message));
        let of_weights = first_asked([
            ("--teacher-format", self.teaching.teacher.teacher_format.is_some()),
            ("--teacher-certificate", self.teaching.teacher_certificate.is_some()),
            ("--max-teacher-kl", self.teaching.max_teacher_kl.is_some()),
        ]);
        if let Some(option) = of_weights {
            return refuse(format!(
                "{option} cannot be combined with --teacher-cache, from which the teacher is read in place of being computed: leave \
                 {option} out, or give --teacher in place of the cache"
            ));
        }
        if self.on_policy.on_policy.is_some() {
            return refuse(
                "--on-policy trains on what the student writes, and a cache holds what the teacher says of data: give --teacher in place \
                 of --teacher-cache"
                    .to_owned(),
            );
        }
        if self.writes()? {
            return refuse(
                "held-out prompts are completed by the student, and a cache holds what the teacher says of data: give --eval-data with \
                 completions, or --teacher in place of --teacher-cache"
                    .to_owned(),
            );
        }
        if self.arithmetic.gemm == Gemm::Cublas {
            return refuse(
                "--gemm cublas: the rows of its GEMMs depend on how many there are, and a cache is filled by the bundle's kernels: \
                 leave it out, or give --teacher in place of --teacher-cache"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Compares the temperatures of a compact cache and of a run. If they differ, returns the cache's, the options that
/// make a cache for this run, and the run's.
pub(super) fn other_temperature(cache: Compact, objective: Objective) -> Option<[String; 3]> {
    let Objective::Distill { temperature, .. } = objective else { return None };
    let is = format!("{temperature} --keep-logits {} --student STUDENT", cache.keep_logits);
    (cache.temperature != temperature).then(|| [cache.temperature.to_string(), is, temperature.to_string()])
}
