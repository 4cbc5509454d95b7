//! State that the phases of a step share.

use std::ops::Range;

use super::inputs::{MicroInputs, TeacherPass};
use super::phases::pass_phase;
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
    pub pass: Option<TeacherPass>,
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
        let (_, teacher) = self.models.teachers.get(number)?;
        match teacher {
            TeacherBuffers::Cached(cached) => Some(cached.teaching()),
            _ => Some(Teaching::Head(self.predict(ops, self.teacher(number)))),
        }
    }

    /// Returns a teacher that is no cached one.
    fn teacher(&self, number: usize) -> Model<'a> {
        let Residents { base, student, .. } = self.models;
        let (name, teacher) = &self.models.teachers[number];
        let (config, resident) = match (teacher, &self.run.teachers[number]) {
            (TeacherBuffers::Model(resident), Teacher::Model { config, .. }) => (*config, &**resident),
            (TeacherBuffers::Student, _) => (self.run.student, student),
            (TeacherBuffers::Base | TeacherBuffers::Model(_) | TeacherBuffers::Cached(_), _) => {
                (self.run.student, base)
            }
        };
        Model { name, config, resident }
    }

    /// Lowers the pass of the teacher over several micro-batches.
    pub fn pass(&self, ops: &mut Ops<'_>, TeacherPass { micros, ids, sequences, stream, .. }: TeacherPass) {
        let tokens = ops.tokens;
        ops.phase(&pass_phase(micros));
        ops.tokens = ids.elems as u32;
        ops.set_sequences(sequences);
        self.teacher(0).stream(ops, ids, Some(stream));
        ops.tokens = tokens;
        ops.set_sequences(self.inputs.sequences);
    }

    /// Lowers what a micro-batch reads of a pass; returns the teacher's predictions.
    pub fn passed(&self, ops: &mut Ops<'_>, pass: TeacherPass) -> Teaching<'a> {
        let model = self.teacher(0);
        ops.scope(model.name);
        let places = self.inputs.in_pass.expect("places in the pass");
        let table = Weight { tensor: pass.stream, role: Role::Frozen };
        let stream = ops.embedding("of_pass", places, &table, model.config.hidden);
        Teaching::Head(model.head_of(ops, stream.into()))
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
