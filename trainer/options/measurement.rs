//! Options of a measurement, whose models may be bare configurations.

use clap::Arg;

use super::{Options, RunConfig, UsageError};

/// An option of a measurement, whose models may be bare configurations.
pub fn measured(option: Arg) -> Arg {
    match option.get_id().as_str() {
        "teacher" => {
            let help = "The model to learn from: as for distill, or a config.json alone for random weights";
            option.help(help).requires("student")
        }
        "student" => {
            let help = "The model to train: as for distill, or a config.json alone for random weights";
            option.help(help).requires("teacher")
        }
        "model" => {
            let help = "The model to train without a teacher: as for train, or a config.json alone for random weights";
            option.help(help).conflicts_with_all(["teacher", "student"])
        }
        "teacher_format" => option.help(
            "How the teacher's weights live on the device: bf16, stored (a config.json alone stands for a Q4_K_M file with \
             other random weights), int8 or auto",
        ),
        _ => option,
    }
}

/// The configuration of a measurement.
///
/// # Errors
/// [`UsageError`] where no model is named, or as a run's.
pub fn measurement(options: Options) -> Result<RunConfig, UsageError> {
    if options.teacher.is_none() && options.model.is_none() {
        return Err(UsageError("no model is named: give --teacher and --student, or --model".into()));
    }
    options.complete(false)
}
