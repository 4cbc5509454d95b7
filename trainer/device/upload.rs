//! Weights on their way to the device, after the seal.

use std::ops::ControlFlow;

use precast_kernels::Format;
use precast_plan::{ModelConfig, Parameter, Resident, Staged, Tensor, TrainingPlan, rope};
use precast_runtime::Sealed;

use crate::base::stop::Stopped;
use crate::device::{DeviceError, one_memory};
use crate::inputs::checkpoint::{Scratch, Weights};

/// Work that is done on a layer as it is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staging {
    Quantize,
    /// Its outputs by either form, too.
    QuantizeAndCertify,
}

/// Sends a model that stays as it is: its tables and its parameters, and those that are quantised on the device.
pub(crate) fn upload_model(
    sealed: &mut Sealed,
    model: &Resident,
    weights: &dyn Weights,
    staging: Staging,
    progress: &mut impl FnMut(u64) -> Result<(), Stopped>,
) -> Result<(), DeviceError> {
    upload_tables(sealed, model, weights.config())?;
    let list: Vec<_> = model.weights.list().map(|(one, weight)| (one.clone(), weight.tensor)).collect();
    upload_parameters(sealed, &list, weights, progress)?;
    upload_staged(sealed, &model.staged, weights, staging, progress)
}

/// Sends what is quantised on the device, a layer at a time.
pub(crate) fn upload_staged(
    sealed: &mut Sealed,
    staged: &[Staged],
    weights: &dyn Weights,
    staging: Staging,
    progress: &mut impl FnMut(u64) -> Result<(), Stopped>,
) -> Result<(), DeviceError> {
    for Staged { quantize, certify: phase, parts } in staged {
        upload_parameters(sealed, parts, weights, progress)?;
        sealed.run(quantize)?;
        if let Some(phase) = phase.as_ref().filter(|_| staging == Staging::QuantizeAndCertify) {
            sealed.run(phase)?;
        }
    }
    Ok(())
}

/// Sends the tables of a model's rotary embedding.
pub(crate) fn upload_tables(sealed: &mut Sealed, model: &Resident, config: &ModelConfig) -> Result<(), DeviceError> {
    let seq_len = (model.rope.cos.elems / u64::from(config.head_dim / 2)) as u32;
    let tables = rope::tables(&config.rope_frequencies(), seq_len);
    sealed.write(model.rope.cos, bytemuck::cast_slice(&tables.cos))?;
    Ok(sealed.write(model.rope.sin, bytemuck::cast_slice(&tables.sin))?)
}

/// Sends the master weights that this rank keeps: of each parameter what of it lies in its pieces.
pub(crate) fn upload_masters(
    sealed: &mut Sealed,
    plan: &TrainingPlan,
    weights: &dyn Weights,
    progress: &mut impl FnMut(u64) -> Result<(), Stopped>,
) -> Result<(), DeviceError> {
    let mut scratch = Scratch::of(one_memory::access(sealed.device()));
    let master = plan.trained().trained().expect("the student trains").master;
    let pieces = plan.shards.own();
    for (parameter, start, _) in plan.student.weights.states() {
        let mut at = start;
        each_part(weights, parameter, master.format, &mut scratch, |part| {
            let end = at + part.len() as u64 / 4;
            for piece in &pieces {
                let (from, to) = (at.max(piece.start), end.min(piece.start + piece.elems));
                if from < to {
                    let bytes = &part[4 * (from - at) as usize..4 * (to - at) as usize];
                    sealed.write(master.slice(piece.local + from - piece.start, to - from), bytes)?;
                }
            }
            at = end;
            Ok(progress(part.len() as u64)?)
        })?;
    }
    Ok(())
}

/// Sends parameters, each to its tensor, in that tensor's format.
pub(crate) fn upload_parameters(
    sealed: &mut Sealed,
    parameters: &[(Parameter, Tensor)],
    weights: &dyn Weights,
    progress: &mut impl FnMut(u64) -> Result<(), Stopped>,
) -> Result<(), DeviceError> {
    let mut scratch = Scratch::of(one_memory::access(sealed.device()));
    for (parameter, tensor) in parameters {
        let mut sent = 0;
        each_part(weights, parameter, tensor.format, &mut scratch, |part| {
            sealed.write_part(*tensor, sent, part)?;
            sent += part.len() as u64;
            Ok(progress(part.len() as u64)?)
        })?;
        assert_eq!(sent, tensor.bytes(), "bytes of {}", parameter.name);
    }
    Ok(())
}

/// Reads a parameter part by part, until a part is not sent.
fn each_part(
    weights: &dyn Weights,
    parameter: &Parameter,
    format: Format,
    scratch: &mut Scratch,
    mut send: impl FnMut(&[u8]) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let mut sent = Ok(());
    weights.read_parts(parameter, format, scratch, &mut |part| {
        sent = send(part);
        if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    sent
}
