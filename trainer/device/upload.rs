//! Weights on their way to the device, after the seal.

use std::ops::ControlFlow;

use precast_kernels::Format;
use precast_plan::rope::Rope;
use precast_plan::{Parameter, Resident, Staged, Tensor, TrainingPlan};
use precast_runtime::{DriverError, Sealed};

use crate::base::stop::Stopped;
use crate::device::DeviceError;
use crate::device::host_memory::DeviceMemory;
use crate::inputs::checkpoint::{Scratch, Weights};

/// Work that is done on a layer as it is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staging {
    Quantize,
    /// Its outputs by either form, too.
    QuantizeAndCertify,
}

/// Is told the bytes sent, and may end it.
pub(crate) type UploadProgress<'p> = dyn FnMut(u64) -> Result<(), Stopped> + 'p;

/// Weights of a model, and the device that they are sent to.
pub(crate) struct Upload<'a> {
    pub sealed: &'a mut Sealed,
    weights: &'a dyn Weights,
    progress: &'a mut UploadProgress<'a>,
    scratch: Scratch,
}

impl<'a> Upload<'a> {
    pub fn new(sealed: &'a mut Sealed, weights: &'a dyn Weights, progress: &'a mut UploadProgress<'a>) -> Self {
        let scratch = Scratch::of(DeviceMemory::access(sealed.device()));
        Self { sealed, weights, progress, scratch }
    }

    /// Works in memory that an upload before has left: fresh memory costs more than what is done in it.
    pub fn reusing(self, scratch: Option<Scratch>) -> Self {
        Self { scratch: scratch.unwrap_or(self.scratch), ..self }
    }

    /// Returns the memory that it has worked in.
    pub fn into_scratch(self) -> Scratch {
        self.scratch
    }

    /// Sends a model that stays as it is: its tables and its parameters, and those that are quantized on the device.
    pub fn model(&mut self, model: &Resident, staging: Staging) -> Result<(), DeviceError> {
        self.tables(model)?;
        let list: Vec<_> = model.weights.list().map(|(one, weight)| (one.clone(), weight.tensor)).collect();
        self.parameters(&list)?;
        self.staged(&model.staged, staging)
    }

    /// Sends what is quantized on the device, a layer at a time.
    pub fn staged(&mut self, staged: &[Staged], staging: Staging) -> Result<(), DeviceError> {
        for Staged { quantize, certify, parts } in staged {
            self.parameters(parts)?;
            self.sealed.run(quantize)?;
            if let Some(certify) = certify.as_ref().filter(|_| staging == Staging::QuantizeAndCertify) {
                self.sealed.run(certify)?;
            }
        }
        Ok(())
    }

    /// Sends the tables of a model's rotary embeddings.
    pub fn tables(&mut self, model: &Resident) -> Result<(), DriverError> {
        let config = self.weights.config();
        let positions = |rope: &Rope| (rope.cos.elems / u64::from(config.rotary / 2)) as u32;
        let seq_len = model.ropes.first().map_or(0, positions);
        for (rope, tables) in model.ropes.iter().zip(config.rope_tables(seq_len)) {
            self.sealed.write(rope.cos, bytemuck::cast_slice(&tables.cos))?;
            self.sealed.write(rope.sin, bytemuck::cast_slice(&tables.sin))?;
        }
        Ok(())
    }

    /// Sends the master weights that this rank keeps: of each parameter what of it lies in its pieces.
    pub fn masters(&mut self, plan: &TrainingPlan) -> Result<(), DeviceError> {
        let master = plan.trained().trained().expect("the student trains").master;
        let pieces = plan.shards.own();
        for (parameter, start, _) in plan.student.weights.states() {
            let mut at = start;
            self.each_part(parameter, master.format, |sealed, part| {
                let end = at + part.len() as u64 / 4;
                for piece in &pieces {
                    let (from, to) = (at.max(piece.start), end.min(piece.start + piece.elems));
                    if from < to {
                        let bytes = &part[4 * (from - at) as usize..4 * (to - at) as usize];
                        sealed.write(master.slice(piece.local + from - piece.start, to - from), bytes)?;
                    }
                }
                at = end;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Sends parameters, each to its tensor, in that tensor's format.
    pub fn parameters(&mut self, parameters: &[(Parameter, Tensor)]) -> Result<(), DeviceError> {
        for (parameter, tensor) in parameters {
            let mut sent = 0;
            self.each_part(parameter, tensor.format, |sealed, part| {
                sealed.write_part(*tensor, sent, part)?;
                sent += part.len() as u64;
                Ok(())
            })?;
            assert_eq!(sent, tensor.format.bytes(parameter.elems()), "bytes of {}", parameter.name);
            self.sealed.write_part(*tensor, sent, &vec![0; (tensor.bytes() - sent) as usize])?;
        }
        Ok(())
    }

    /// Reads a parameter part by part, until a part is not sent.
    fn each_part<F>(&mut self, parameter: &Parameter, format: Format, mut send: F) -> Result<(), DeviceError>
    where
        F: FnMut(&mut Sealed, &[u8]) -> Result<(), DriverError>,
    {
        let Self { sealed, weights, progress, scratch } = self;
        let mut sent = Ok(());
        weights.read_parts(parameter, format, scratch, &mut |part| {
            sent = send(sealed, part).map_err(DeviceError::from).and_then(|()| Ok(progress(part.len() as u64)?));
            if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        sent
    }
}
