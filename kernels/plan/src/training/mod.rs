//! The plan of a training step.

mod decode;
mod guard;
mod inputs;
mod micro;
mod phases;
mod plan;
mod refusals;
mod request;
mod resident;
mod startup;
mod step;
mod update;

pub use inputs::{MicroInputs, TaughtInputs, TeacherPass};
pub(crate) use phases::PASS;
pub use phases::{CAST, CLEAR, GATHER, LAST, MASTERS, MICRO, TEACHER, UPDATE, certify_phase, of_teacher, pass_phase};
pub use plan::{TrainingBuffers, TrainingPlan};
pub use request::{Student, Teacher, TrainingRequest};
pub use resident::TeacherBuffers;

pub use crate::staged::WIDEN;
