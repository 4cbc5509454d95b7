//! The trained student, as a model.

use precast_kernels::Dtype;

use crate::checkpoint::{Checkpoint, Scratch, Student, write_model};
use crate::config::RunConfig;
use crate::error::Failure;
use crate::session::Session;

/// Writes the student to the output directory, with the tokenizer of the first model that has one.
pub(super) fn write_student(
    config: &RunConfig,
    session: &mut Session,
    teacher: &Checkpoint,
    student: &Checkpoint,
) -> Result<(), Failure> {
    let parameters = session.plan().student_parameters.list.clone();
    let dtype = config.precision.dtype();
    let model = Student { config: student.json(), parameters: &parameters, dtype, tokenizer_from: &[student, teacher] };
    write_model(&config.out.join("student"), &model, |parameter| {
        let master = session.master(parameter)?;
        if dtype == Dtype::F32 {
            return Ok::<_, Failure>(master);
        }
        let mut scratch = Scratch::new();
        bytemuck::cast_slice_mut(scratch.values(master.len() / 4)).copy_from_slice(&master);
        Ok(scratch.encode(dtype).to_vec())
    })
}
