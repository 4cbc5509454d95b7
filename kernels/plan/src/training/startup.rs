//! Lowers the phases that run once, before the first step.

use super::inputs::MicroInputs;
use super::phases::{CAST, CLEAR};
use super::refusals::Run;
use super::resident::Frozen;
use super::step::Step;
use crate::comparison::TokenComparison;
use crate::config::ModelConfig;
use crate::head::{self, Head};
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::staged::{CERTIFY, Staged, WIDEN};
use precast_core::plan::{Builder, Tensor};
use precast_kernels::Dtype;

/// Quantizes the int8 models. With `certified`, measures the distance of an int8 teacher from the dense one.
pub(super) fn quantize(
    b: &mut Builder,
    run: &Run<'_>,
    Frozen { teacher, base }: &mut Frozen,
    inputs: &MicroInputs,
    certified: bool,
) -> Option<TokenComparison<Tensor>> {
    let ops = &mut run.ops(b, None).of(inputs.sequences);
    let mut stage = |name, config: &ModelConfig, resident: &mut Resident, certified: bool| {
        let model = Model { name, config, resident };
        let (staged, reference) = model.quantize(ops, certified.then_some(inputs.ids));
        let certificate = reference.map(|reference| {
            ops.startup_phase(CERTIFY);
            let last = Model { name: "teacher.certified", ..model }.forward(ops, inputs.ids);
            ops.scope("certificate");
            head::compare(ops, [Head { hidden: reference, ..last }, last], run.student.vocab, inputs.targets)
        });
        resident.staged = staged;
        certificate
    };
    let own = run.resident_teacher().filter(|(_, formats)| formats.is_int8()).zip(teacher.as_mut());
    let of_teacher = own.and_then(|((config, _), resident)| stage("teacher", config, resident, certified));
    let base = base.as_mut();
    let of_base = base.and_then(|resident| stage("student", run.student, resident, certified && run.base_teaches()));
    of_teacher.or(of_base)
}

impl Step<'_> {
    /// Clears the optimizer's state, and makes the other form of the uploaded weights. Returns the layers of a student
    /// that are quantized as they arrive.
    pub fn prepare(&self, ops: &mut Ops<'_>) -> Vec<Staged> {
        ops.phase(CLEAR);
        ops.scope("clear");
        let semaphores = self.semaphores.map(|semaphores| ("semaphores", semaphores));
        for (name, tensor) in self.state.cleared().chain(semaphores) {
            match tensor.format == Dtype::Bf16 {
                // Only f32 is filled: the zeros of moments in bf16 are those of gradients.
                true => ops.cast(name, self.state.cleared_grad(tensor.elems), tensor),
                false => ops.clear(name, tensor),
            }
        }
        ops.scope("student");
        ops.phase(CAST);
        ops.narrow(&self.state);
        ops.phase(WIDEN);
        ops.widen(&self.state);
        match self.quantized {
            Some(_) if self.run.share.ranks == 1 => self.student().widen(ops),
            _ => Vec::new(),
        }
    }
}
