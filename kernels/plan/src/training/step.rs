//! State that the phases of a step share.

use std::ops::Range;

use super::inputs::MicroInputs;
use super::refusals::Run;
use super::request::Teacher;
use super::resident::{Residents, TeacherBuffers};
use crate::head::{Head, Scores, Teaching};
use crate::model::Model;
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

    /// Returns the numbers of the phases of micro-batches: one of each teacher, or 0 without any.
    pub fn numbers(&self) -> Range<usize> {
        0..self.models.teachers.len().max(1)
    }

    /// Lowers a teacher by its number, unless it is cached; returns its predictions, if there is one.
    pub fn teach(&self, ops: &mut Ops<'_>, number: usize) -> Option<Teaching<'a>> {
        let Residents { base, student, .. } = self.models;
        let (name, teacher) = self.models.teachers.get(number)?;
        let (config, resident) = match (teacher, &self.run.teachers[number]) {
            (TeacherBuffers::Cached(cached), _) => return Some(cached.teaching()),
            (TeacherBuffers::Model(resident), Teacher::Model { config, .. }) => (*config, &**resident),
            (TeacherBuffers::Student, _) => (self.run.student, student),
            (TeacherBuffers::Base | TeacherBuffers::Model(_), _) => (self.run.student, base),
        };
        Some(Teaching::Head(self.predict(ops, Model { name, config, resident })))
    }

    /// Lowers a teacher's hidden states at the student's places.
    fn predict(&self, ops: &mut Ops<'_>, model: Model<'a>) -> Head<'a> {
        let Some(taught) = self.inputs.taught else { return model.forward(ops, self.inputs.ids) };
        ops.set_sequences(taught.sequences);
        let head = model.forward(ops, taught.ids);
        ops.set_sequences(self.inputs.sequences);
        let hidden = Weight { tensor: head.hidden, role: Role::Frozen };
        Head { hidden: ops.embedding("at_student", taught.places, &hidden, model.config.hidden), ..head }
    }
}
