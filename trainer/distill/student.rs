//! The trained student, as a model.

use precast_fatbins::files::Aside;
use precast_kernels::Dtype;
use precast_plan::Parameter;

use crate::checkpoint::{Checkpoint, Scratch, Student, fill_model, stored};
use crate::config::RunConfig;
use crate::error::Failure;
use crate::models::Models;
use crate::record::RunRecord;
use crate::run::out::Out;
use crate::session::Session;

/// Writes the student to the output directory, with the tokenizer of the first model that has one.
pub(super) fn write_student(
    config: &RunConfig,
    session: &mut Session,
    models: &Models<Checkpoint>,
    out: &mut Out,
    record: &mut RunRecord,
) -> Result<(), Failure> {
    out.check_claim()?;
    let parameters = session.plan().student.weights.parameters.list.clone();
    let tokenizer_from: Vec<&Checkpoint> = models.student_first().collect();
    let model = model(config, &parameters, &tokenizer_from);
    let path = out.path().join("student");
    let mut aside = Aside::new(&path).map_err(Failure::io("write", path))?;
    let (dtype, mut scratch) = (config.settings.precision.dtype(), Scratch::new());
    fill_model(&mut aside, &model, |parameter, write| {
        let master = session.trained_of(parameter).master;
        session.read_parts(master, |part| {
            if dtype == Dtype::F32 {
                return Ok(write(part)?);
            }
            bytemuck::cast_slice_mut(scratch.values(part.len() / 4)).copy_from_slice(part);
            Ok(write(scratch.encode(dtype))?)
        })
    })?;
    out.publish(aside, record)
}

/// What is written of a student.
pub(super) fn model<'a>(
    config: &RunConfig,
    parameters: &'a [Parameter],
    tokenizer_from: &'a [&'a Checkpoint],
) -> Student<'a> {
    let dtype = stored(config.settings.precision.dtype());
    Student { config: tokenizer_from[0].json(), parameters, dtype, tokenizer_from }
}
