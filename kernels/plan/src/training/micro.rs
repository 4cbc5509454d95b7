//! Lowers a micro-batch: forward, head, backward and the sum of its gradients; and the teacher alone.

use super::step::Step;
use super::{LAST, MICRO, TEACHER};
use crate::head;
use crate::ops::{Ops, Sorted};

impl Step<'_> {
    /// Lowers the phases that compute the gradients of a step.
    pub fn gradients(&self, ops: &mut Ops<'_>) {
        let share = self.run.share;
        ops.phase(MICRO);
        self.micro_batch(ops);
        for fold in share.folds() {
            ops.phase(&fold.phase());
            ops.scope("replicas");
            ops.fold(fold, &self.sums);
        }
        if share.ranks > 1 {
            ops.phase(LAST);
            ops.restart();
            self.micro_batch(ops);
            ops.scope("ranks");
            ops.sum_over_ranks(&self.sums, self.shards);
        }
    }

    fn micro_batch(&self, ops: &mut Ops<'_>) {
        let (inputs, recipe) = (self.inputs, &self.run.recipe);
        let teacher_last = self.teach(ops);
        if self.run.share.ranks > 1 && teacher_last.is_some() {
            // Other ranks' weights may still be arriving while the teacher runs.
            ops.cut();
        }
        let model = self.student();
        let (last, saved) = model.forward_saving(ops, inputs.ids, recipe.recompute);
        ops.scope("head");
        let targets = (inputs.targets, Some(self.tensors.metrics));
        let dhidden = head::losses(ops, recipe.objective, last, teacher_last, targets);
        let sorted = Sorted { ids: inputs.sorted_ids, positions: inputs.sorted_positions };
        model.backward(ops, saved, dhidden, sorted);
    }

    /// Lowers the losses of the teacher alone, if there is one.
    pub fn teacher_alone(&self, ops: &mut Ops<'_>) {
        let (inputs, objective) = (self.inputs, self.run.recipe.objective);
        if objective.has_teacher() {
            ops.phase(TEACHER);
            let teacher = self.teach(ops).expect("a run that learns from a teacher has one");
            ops.scope("teacher.head");
            let targets = (inputs.targets, self.tensors.metrics);
            head::teacher_losses(ops, objective, teacher, self.run.student.vocab, targets);
        }
    }
}
