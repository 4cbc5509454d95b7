//! Lowers the phases that run once, before the first step.

use super::inputs::MicroInputs;
use super::phases::{CAST, CLEAR, certify_phase, of_teacher};
use super::refusals::Run;
use super::request::Teacher;
use super::resident::Frozen;
use super::step::Step;
use crate::comparison::TokenComparison;
use crate::config::ModelConfig;
use crate::head::{self, Head};
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::staged::{Staged, WIDEN};
use precast_core::plan::{Builder, Tensor};
use precast_kernels::Dtype;

/// Quantizes the int8 models. With `certified`, measures the distance of an int8 teacher from the dense one.
pub(super) fn quantize(
    b: &mut Builder,
    run: &Run<'_>,
    Frozen { teachers, base }: &mut Frozen,
    inputs: &MicroInputs,
    certified: bool,
) -> Vec<Option<TokenComparison<Tensor>>> {
    let ops = &mut run.ops(b, None).of(inputs.sequences);
    let mut stage = |(name, number): (&str, usize), config: &ModelConfig, resident: &mut Resident, certified: bool| {
        let model = Model { name, config, resident };
        let (staged, reference) = model.quantize(ops, certified.then_some(inputs.ids));
        let certificate = reference.map(|reference| {
            ops.startup_phase(&certify_phase(number));
            let name = of_teacher("teacher", number) + ".certified";
            let last = Model { name: &name, ..model }.forward(ops, inputs.ids);
            ops.scope("certificate");
            head::compare(ops, [Head { hidden: reference, ..last }, last], run.student.vocab, inputs.targets)
        });
        resident.staged = staged;
        certificate
    };
    let mut certificates: Vec<Option<TokenComparison<Tensor>>> = Vec::new();
    for (number, (teacher, resident)) in run.teachers.iter().zip(teachers).enumerate() {
        let own = match (teacher, resident) {
            (Teacher::Model { config, formats }, Some(resident)) if formats.is_int8() => Some((*config, resident)),
            _ => None,
        };
        let name = of_teacher("teacher", number);
        certificates.push(own.and_then(|(config, resident)| stage((&name, number), config, resident, certified)));
    }
    if let Some(resident) = base {
        let is_base = |number: &usize| matches!(run.teachers[*number], Teacher::Base);
        let bases: Vec<usize> = (0..run.teachers.len()).filter(is_base).collect();
        let name = ("student", bases.first().copied().unwrap_or_default());
        let of_base = stage(name, run.student, resident, certified && !bases.is_empty());
        bases.into_iter().for_each(|number| certificates[number] = of_base);
    }
    certificates
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
