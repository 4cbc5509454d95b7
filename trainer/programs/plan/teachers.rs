//! Memory of each of several teachers.

use std::fmt::{self, Display, Formatter};

use precast_plan::category::{TEACHER_SCRATCH, TEACHER_WEIGHTS};
use precast_plan::{Plan, human_bytes};
use serde::Serialize;

use crate::options::Teachers;

/// The part of the device's memory that a teacher takes for itself: its weights, and scratch for them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TeacherBytes {
    name: String,
    bytes: u64,
}

impl TeacherBytes {
    /// Returns them by the numbers of the teachers; none of one without a name.
    pub fn of(teachers: &Teachers, plan: &Plan) -> Vec<Self> {
        let own = plan.buffers.iter().filter(|buffer| [TEACHER_WEIGHTS, TEACHER_SCRATCH].contains(&buffer.category));
        let bytes = |number| own.clone().filter(move |buffer| number_of(&buffer.name) == number);
        let of = |(number, name)| Self { name, bytes: bytes(number).map(|buffer| buffer.reserved_bytes()).sum() };
        teachers.names().into_iter().enumerate().map(of).collect()
    }
}

/// Returns the number of a teacher by a buffer: `teacher.1.weights` is of the second.
fn number_of(buffer: &str) -> usize {
    let number = buffer.strip_prefix("teacher.").and_then(|rest| rest.split('.').next()?.parse().ok());
    number.unwrap_or_default()
}

impl Display for TeacherBytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, bytes } = self;
        write!(f, "  teacher {name:<11} {:>12}  {bytes:>16} bytes", human_bytes(*bytes))
    }
}
