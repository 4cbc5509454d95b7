//! Result of a run, as files: the student, as a model, or its adapter, as PEFT has it.

use precast_kernels::Dtype;
use precast_system::files::Aside;

use super::open::Opened;
use super::ready::Ready;
use super::running::Written;

use crate::base::roles::Models;
use crate::device::host_memory::DeviceMemory;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::inputs::adapter::{Adapter, extent, fill_adapter, gathered};
use crate::inputs::checkpoint::{Checkpoint, MODEL, ModelSource, Scratch, fill_model, stored};
use crate::options::RunConfig;
use crate::run::checkpoint::Saved;
use crate::run::error::RunError;
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;
use crate::run::saved_tensor::SavedTensor;

/// Writes the student, or its adapter, to the output directory, under a name: as it is on the device, or as a
/// checkpoint has it. One that is as it began is no result.
pub(super) fn write_result(
    name: &str,
    saved: Option<&Saved>,
    run: &mut Ready,
    written: &mut Written,
) -> Result<(), Failure> {
    let Ready { opened: Opened { config, models: RunModels { models, adapter, .. }, .. }, session, .. } = run;
    let Written { out, record, .. } = written;
    out.check_claim()?;
    let mut masters = saved.map(|saved| saved.masters(session.plan.shards.elems())).transpose()?;
    let path = out.path().join(name);
    let mut aside = Aside::new(&path).map_err(RunError::io("write", path))?;
    let largest = match adapter {
        Some(adapter) => {
            fill_with_adapter(&mut aside, config, (session, masters.as_mut()), (&models.student, adapter))?;
            adapter.largest_update(aside.path())?
        }
        None => {
            fill_with_student(&mut aside, config, (session, masters.as_mut()), models)?;
            let (dtype, access) = (config.result_dtype(), DeviceMemory::access(session.device()));
            models.student.largest_update(&aside.path().join(MODEL), dtype, access)?
        }
    };
    record.largest_update = Some(largest.into());
    if largest == 0.0 {
        let (what, lr) = (config.trained(), config.optimizer.lr);
        return Err(RunFault(format!(
            "nothing changed: every weight of the {what}, as it would be written, is as it began. Nothing is \
            written. Raise --lr ({lr:e})"
        ))
        .into());
    }
    Ok(out.publish(aside, record)?)
}

/// The student, with the tokenizer of the first model that has one.
fn fill_with_student(
    aside: &mut Aside,
    config: &RunConfig,
    (session, mut masters): (&mut Session, Option<&mut SavedTensor>),
    models: &Models<Checkpoint>,
) -> Result<(), RunError> {
    let parameters = session.plan.student.weights.parameters.list.clone();
    let tokenizer_from: Vec<&Checkpoint> = models.student_first().collect();
    let (of_model, mut scratch) = (config.result_dtype(), Scratch::default());
    let json = &models.student.json;
    let model =
        ModelSource { config: json, parameters: &parameters, dtype: stored(of_model), tokenizer_from: &tokenizer_from };
    fill_model(aside, &model, |parameter, write| {
        let dtype = parameter.dtype(of_model);
        let mut round = |part: &[u8]| {
            if dtype == Dtype::F32 {
                return Ok::<_, RunError>(write(part)?);
            }
            bytemuck::cast_slice_mut(scratch.values(part.len() / 4)).copy_from_slice(part);
            Ok(write(scratch.encode(dtype))?)
        };
        if let Some(masters) = &mut masters {
            let mut states = session.plan.student.weights.states();
            let (_, start, _) = states.find(|(one, ..)| *one == parameter).expect("a parameter of the student");
            return masters.read_parts((start, parameter.elems()), round);
        }
        let trained = session.trained_of(parameter);
        if session.plan.collects_masters() {
            return session.read_parts(trained.grad, &mut round);
        }
        if !session.plan.has_whole_masters() {
            // Working weights are those of the result.
            let working = session.working(parameter);
            return session.read_parts(working, |part| Ok(write(part)?));
        }
        session.read_parts(trained.master, &mut round)
    })
}

/// The adapter's master weights.
fn fill_with_adapter(
    aside: &mut Aside,
    config: &RunConfig,
    (session, mut masters): (&mut Session, Option<&mut SavedTensor>),
    (student, adapter): (&Checkpoint, &Adapter),
) -> Result<(), RunError> {
    let parameters = session.adapter_parameters();
    fill_adapter(aside, &adapter.layout, (&config.student, student.config()), |adapted, factor, write| {
        let name = adapted.parameter();
        let parameter = parameters.iter().find(|one| one.factor == factor && one.projection == name);
        let parameter = parameter.expect("the plan is of this adapter");
        let master = match &mut masters {
            Some(masters) => gathered(parameter, &masters.read((parameter.start, extent(parameter)))?),
            None => session.adapter_master(parameter)?,
        };
        Ok::<_, RunError>(write(bytemuck::cast_slice(&master))?)
    })
}
