//! What a run's options come to: either a teacher and its student, or a model alone.

use std::path::PathBuf;

use precast_plan::Objective;

use super::RunConfig;
use super::flags::{flag, is_of_teacher};
use super::options::{Options, Teaching};
use crate::error::Failure;

impl Options {
    /// The configuration of a run: of --model alone, or of a teacher and a student. `needs_run` asks for data and an output
    /// directory too.
    ///
    /// # Errors
    /// [`Failure::Usage`] for what is missing, and for an option of a teacher where there is none.
    pub fn complete(self, needs_run: bool) -> Result<RunConfig, Failure> {
        let Teaching { alpha, temperature, beta, teacher_format, allow_identical } = self.teaching;
        let (teacher, student, objective) = match self.model {
            Some(model) => {
                if let Some(name) = self.given.keys().find(|name| is_of_teacher(name)) {
                    return Err(without_teacher(name));
                }
                (None, model, Objective::CrossEntropy)
            }
            None => (
                Some(self.teacher.ok_or_else(|| missing("teacher"))?),
                self.student.ok_or_else(|| missing("student"))?,
                Objective::Distill { alpha, temperature, beta },
            ),
        };
        let out = match self.out {
            Some(out) => out,
            None if needs_run => return Err(missing("out")),
            None => PathBuf::new(),
        };
        if needs_run && self.data.is_empty() {
            return Err(missing("data"));
        }
        let teacher_format = objective.has_teacher().then_some(teacher_format);
        let (data, settings) = (self.data, self.settings);
        Ok(RunConfig { teacher, student, data, out, objective, teacher_format, allow_identical, settings })
    }
}

/// An option that a run cannot do without.
pub fn missing(name: &str) -> Failure {
    Failure::Usage(format!("{} is missing: give it as a flag or in --config run.toml", flag(name)))
}

fn without_teacher(name: &str) -> Failure {
    let option = flag(name);
    Failure::Usage(format!(
        "{option} is of a run with a teacher, and --model trains without one: leave {option} out, or give --teacher and \
         --student in place of --model"
    ))
}
