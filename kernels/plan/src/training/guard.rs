//! Compares int8's gradients with bf16's, if a student trains in int8.

use super::inputs::MicroInputs;
use super::phases::of_teacher;
use super::step::Step;
use crate::guard::{GUARD, Guard, Guarded};
use crate::model::Model;
use crate::ops::Ops;

impl Step<'_> {
    /// Lowers the comparisons of int8's gradients with bf16's on micro-batches of each teacher; none unless the
    /// student trains in int8.
    pub fn guards(&self, ops: &mut Ops<'_>) -> Vec<Guard> {
        self.numbers().filter_map(|number| self.guard(ops, number)).collect()
    }

    fn guard(&self, ops: &mut Ops<'_>, number: usize) -> Option<Guard> {
        let weights = self.quantized?;
        ops.phase(&of_teacher(GUARD, number));
        ops.restart();
        let teacher = self.teach(ops, number);
        let model = Model { name: "guard", config: self.run.student, resident: &self.models.base };
        let copy = (self.run.share.ranks > 1).then_some(weights.all.tensor);
        let MicroInputs { ids, targets, .. } = self.inputs;
        Some(Guarded { model, copy, objective: self.run.recipe.objective, teacher, ids, targets }.lower(ops))
    }
}
