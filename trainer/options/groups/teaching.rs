//! Options of a teacher.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use precast_plan::Precision;

use super::Change;
use super::values::within;
use crate::options::given::Sourced;
use crate::options::usage::first_asked;
use crate::options::{Given, MostKl, UsageError, WeightFormat, max_kl};

/// Options of a teacher: a run without one refuses these.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Teaching")]
pub struct TeachingOptions {
    /// Weight of the teacher's term in the loss, 0 to 1
    #[arg(long, value_name = "X", default_value = "0.5", value_parser = Sourced(within(0.0..=1.0)))]
    pub alpha: Given<f32>,
    /// Distillation temperature
    #[arg(long, value_name = "X", default_value = "2", value_parser = Sourced(within(TEMPERATURES)))]
    pub temperature: Given<f32>,
    #[command(flatten)]
    pub teacher: TeacherOptions,
    /// Certificate of the teacher for --teacher-format int8, written by `precast eval compare --format int8 --against
    /// bf16 --out FILE`. Without it a run measures the KL on its first batch, if memory has room for that
    #[arg(long, value_name = "FILE", add = Change::AtResume)]
    pub teacher_certificate: Option<PathBuf>,
    /// Refuse --teacher-format int8 if its mean KL from the bf16 teacher is above this, nats a token; none for no limit
    /// [default: 0.02]
    #[arg(long, value_name = "X|none", value_parser = max_kl::nats, add = Change::AtResume)]
    pub max_teacher_kl: Option<MostKl>,
    /// Allow a teacher that predicts the first batch far worse than guessing does
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", add = Change::AtResume)]
    pub untrained: bool,
    /// Allow a student with the same weights as its teacher
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", add = Change::AtResume)]
    pub allow_identical: bool,
}

/// Options of a teacher that decide which kernels run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Teaching")]
pub struct TeacherOptions {
    /// Divergence of the teacher's term, t of teacher and s of student: 0 is KL(t || s), 1 is KL(s || t), and between
    /// them is beta KL(t || m) + (1 - beta) KL(s || m) with m = beta t + (1 - beta) s
    #[arg(long, value_name = "X", default_value = "0", value_parser = Sourced(within(0.0..=1.0)))]
    pub beta: Given<f32>,
    /// Form of the teacher's weights on the device. At the same bits: bf16 (the run's precision), stored (matrices as a
    /// GGUF file holds them, each dequantized just before its GEMM) or auto (bf16 where that fits into the device's
    /// memory, else stored). At other bits, and faster: int8 (inputs of the layers' matrix multiplications are rotated
    /// and rounded to 8 bits; the run says what that costs, in nats) [default: auto]
    #[arg(long, value_name = "FORM", help_heading = "Memory", add = Change::AtResume)]
    pub teacher_format: Option<WeightFormat>,
}

/// Temperatures whose squares and inverses an fp32 loss can hold.
pub(crate) const TEMPERATURES: RangeInclusive<f32> = 1e-3..=1e3;

impl TeachingOptions {
    /// Returns the first of these that is asked for.
    pub(crate) fn first_asked(&self) -> Option<String> {
        let Self { alpha, temperature, teacher, untrained, allow_identical, .. } = self;
        let beta = &teacher.beta;
        first_asked!(alpha, temperature, beta, untrained, allow_identical).or_else(|| self.first_of_weights())
    }

    /// Returns the first that is asked for of those that say how its weights are on the device.
    pub(crate) fn first_of_weights(&self) -> Option<String> {
        let Self { teacher: TeacherOptions { teacher_format, .. }, teacher_certificate, max_teacher_kl, .. } = self;
        first_asked!(teacher_format, teacher_certificate, max_teacher_kl)
    }

    /// Returns the limit of a rounded teacher's distance from the exact one; none of a teacher that is exact.
    ///
    /// # Errors
    /// [`UsageError`] for an option of a rounded teacher where it is exact, and for a precision that none has.
    pub(crate) fn certified(&self, precision: Precision) -> Result<Option<MostKl>, UsageError> {
        let format = self.teacher.teacher_format.unwrap_or_default();
        if format.is_exact() {
            let Self { teacher_certificate, max_teacher_kl, .. } = self;
            let refuse = |option| Err(UsageError(format!("{option} requires --teacher-format int8")));
            return first_asked!(teacher_certificate, max_teacher_kl).map_or(Ok(None), refuse);
        }
        if precision == Precision::Fp32 {
            return Err(UsageError(format!(
                "--teacher-format int8 gives bf16: it cannot be combined with --precision {precision}. Use \
                --precision bf16 or int8, or \
                 --teacher-format bf16 or stored"
            )));
        }
        Ok(Some(self.max_teacher_kl.unwrap_or(max_kl::DEFAULT)))
    }
}
