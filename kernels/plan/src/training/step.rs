//! State that the phases of a step share.

use super::inputs::MicroInputs;
use super::refusals::Run;
use super::resident::Residents;
use crate::config::ModelConfig;
use crate::head::{Head, Scores, Teaching};
use crate::model::Model;
use crate::model::Resident;
use crate::ops::{Ops, OptimizerState, StepTensors, Sums};
use crate::share::Shards;
use crate::weights::{Role, Weight, Weights};
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
        let Residents { teacher, cached, base, student, .. } = self.models;
        if let Some(cached) = cached {
            return Some(cached.teaching());
        }
        let own = self.run.resident_teacher().map(|(config, _)| config).zip(teacher.as_ref());
        let own = own.or(self.run.base_teaches().then_some((self.run.student, base)));
        let teaching = own.or(self.run.student_teaches().then_some((self.run.student, student)));
        teaching.map(|teacher| Teaching::Head(self.predict(ops, teacher)))
    }

    /// Lowers a teacher's hidden states at the student's places.
    fn predict(&self, ops: &mut Ops<'_>, (config, resident): (&'a ModelConfig, &'a Resident)) -> Head<'a> {
        let model = Model { name: "teacher", config, resident };
        let Some(taught) = self.inputs.taught else { return model.forward(ops, self.inputs.ids) };
        ops.set_sequences(taught.sequences);
        let head = model.forward(ops, taught.ids);
        ops.set_sequences(self.inputs.sequences);
        let hidden = Weight { tensor: head.hidden, role: Role::Frozen };
        Head { hidden: ops.embedding("at_student", taught.places, &hidden, config.hidden), ..head }
    }
}
