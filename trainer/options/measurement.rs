//! Options of a measurement, whose models may be bare configurations.

use clap::{ArgGroup, Args};

use super::groups::{
    AdapterOptions, ArithmeticOptions, DeviceOptions, ModelOptions, Options, ShapeOptions, TeacherOptions,
    TeachingOptions, TuningOptions,
};
use super::usage::UsageError;

/// Options of a run that decide which kernels a step launches, and how long they take.
#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("teacher", |option| option.requires("student")),
    mut_arg("teacher_cache", |option| option.requires("student")),
    group(ArgGroup::new("taught").args(["teacher", "teacher_cache"]).multiple(true)),
    mut_arg("student", |option| option.requires("taught")),
    mut_arg("model", |option| option.conflicts_with_all(["teacher", "teacher_cache", "student"]))
)]
pub struct Measurement {
    #[command(flatten)]
    pub models: ModelOptions,
    #[command(flatten)]
    pub teacher: TeacherOptions,
    #[command(flatten)]
    pub adapting: AdapterOptions,
    #[command(flatten)]
    pub shape: ShapeOptions,
    #[command(flatten)]
    pub arithmetic: ArithmeticOptions,
    #[command(flatten)]
    pub target: DeviceOptions,
    #[command(flatten)]
    pub tuning: TuningOptions,
}

impl Measurement {
    /// Returns the options of a run, those that a measurement has not at their defaults.
    ///
    /// # Errors
    /// [`UsageError`] where no model is named.
    pub fn into_options(self) -> Result<Options, UsageError> {
        let Self { models, teacher, adapting, shape, arithmetic, target, tuning } = self;
        if models.teacher.is_empty() && models.teacher_cache.is_empty() && models.model.is_none() {
            return Err(UsageError("no model is named: give --teacher and --student, or --model".into()));
        }
        if models.has_named_teachers() {
            return Err(UsageError("a measurement has one teacher, without a name: give one --teacher PATH".into()));
        }
        let default = Options::default();
        let teaching = TeachingOptions { teacher, ..default.teaching };
        Ok(Options { models, teaching, adapting, shape, arithmetic, target, tuning, ..default })
    }
}
