//! State that the phases of a step share.

use super::inputs::MicroInputs;
use super::refusals::Run;
use super::resident::Residents;
use crate::head::{Scores, Teaching};
use crate::model::Model;
use crate::ops::{Ops, OptimizerState, StepTensors, Sums};
use crate::share::Shards;
use crate::weights::Weights;
use precast_core::plan::Tensor;

pub(super) struct Step<'a> {
    pub run: &'a Run<'a>,
    pub models: &'a Residents,
    pub inputs: MicroInputs,
    pub tensors: StepTensors,
    pub shards: &'a Shards,
    pub sums: Sums,
    pub scores: Option<Scores>,
    pub state: OptimizerState<'a>,
    /// Number of decayed elements.
    pub decayed: u64,
    /// Weights of a student that trains with quantized layers.
    pub quantized: Option<&'a Weights>,
    /// Semaphores of launches that split K.
    pub semaphores: Option<Tensor>,
}

impl<'a> Step<'a> {
    pub fn student(&self) -> Model<'a> {
        Model { name: "student", config: self.run.student, resident: &self.models.student }
    }

    /// Lowers the teacher, unless it is cached; returns its predictions, if there is one.
    pub fn teach(&self, ops: &mut Ops<'_>) -> Option<Teaching<'a>> {
        let Residents { teacher, cached, base, .. } = self.models;
        if let Some(cached) = cached {
            return Some(cached.teaching());
        }
        let own = self.run.resident_teacher().map(|(config, _)| config).zip(teacher.as_ref());
        let teaching = own.or(self.run.base_teaches().then_some((self.run.student, base)));
        let forward = |(config, resident)| Model { name: "teacher", config, resident }.forward(ops, self.inputs.ids);
        teaching.map(forward).map(Teaching::Head)
    }
}
