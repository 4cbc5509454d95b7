//! Lowers a micro-batch: forward, head, backward and the sum of its gradients; and the teacher alone.

use super::phases::{LAST, MICRO, TEACHER, of_teacher};
use super::request::Teacher;
use super::resident::TeacherBuffers;
use super::step::Step;
use crate::cached::CachedTeacher;
use crate::head::{self, Outputs, Teaching};
use crate::ops::{Ops, Sorted};
use crate::recipe::Recompute;
use precast_core::plan::Tensor;

impl Step<'_> {
    /// Lowers the phases that compute the gradients of a step.
    pub fn gradients(&self, ops: &mut Ops<'_>) {
        let share = self.run.share;
        if let Some(pass) = self.pass {
            self.pass(ops, pass);
        }
        self.numbers().for_each(|number| self.micro_batch(ops, MICRO, number));
        for fold in share.folds() {
            ops.phase(&fold.phase());
            ops.scope("replicas");
            ops.fold(fold, &self.sums);
        }
        if share.ranks > 1 {
            for number in self.numbers() {
                self.micro_batch(ops, LAST, number);
                ops.scope("ranks");
                ops.sum_over_ranks(&self.sums, self.shards, self.last_gradient());
            }
        }
    }

    /// Returns the gradient of the embedding table if it trains and there is memory to hide its exchange: where blocks
    /// are recomputed there is none.
    fn last_gradient(&self) -> Option<Tensor> {
        let embedding = self.models.student.weights.embedding.trained();
        embedding.map(|trained| trained.grad).filter(|_| self.run.recipe.recompute != Recompute::Blocks)
    }

    fn micro_batch(&self, ops: &mut Ops<'_>, phase: &str, number: usize) {
        let (inputs, recipe) = (self.inputs, &self.run.recipe);
        ops.phase(&of_teacher(phase, number));
        ops.restart();
        let teacher = match self.pass {
            Some(pass) => Some(self.passed(ops, pass)),
            None => self.teach(ops, number),
        };
        let is_student = matches!(self.run.teachers.get(number), Some(Teacher::Student));
        if self.run.share.ranks > 1 && teacher.is_some() && !is_student && self.pass.is_none() {
            // Other ranks' weights may still be arriving while the teacher runs.
            ops.cut();
        }
        let model = self.student();
        let (last, saved) = model.forward_saving(ops, inputs.ids, recipe.recompute);
        ops.scope("head");
        let out = Outputs { metrics: Some(self.tensors.metrics), scores: self.scores };
        let dhidden = head::losses(ops, recipe.objective, last, teacher, (inputs.targets, out));
        let sorted = Sorted { ids: inputs.sorted_ids, positions: inputs.sorted_positions };
        model.backward(ops, saved, dhidden, sorted);
    }

    /// Lowers the losses of each teacher alone whose logits are computed.
    pub fn teachers_alone(&self, ops: &mut Ops<'_>) {
        let (inputs, objective) = (self.inputs, self.run.recipe.objective);
        for (number, (_, teacher)) in self.models.teachers.iter().enumerate() {
            if matches!(teacher, TeacherBuffers::Cached(CachedTeacher::Compact(_))) {
                continue;
            }
            ops.phase(&of_teacher(TEACHER, number));
            let Some(Teaching::Head(teacher)) = self.teach(ops, number) else { panic!("a teacher has no head") };
            ops.scope("teacher.head");
            let targets = (inputs.targets, self.tensors.metrics);
            head::teacher_losses(ops, objective, teacher, self.run.student.vocab, targets);
        }
    }
}
