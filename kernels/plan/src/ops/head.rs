//! The head: logits of a chunk of tokens, and what becomes of them.

use precast_kernels::abi::{
    head_ce_params, head_compare_params, head_distill_params, head_jsd_params, head_metrics_params, head_nll_params,
};
use precast_kernels::head::{HeadCe, HeadCompare, HeadDistill, HeadJsd, HeadMetrics, HeadNll};

use super::Ops;
use super::linear::Factors;
use crate::buffer::Tensor;
use crate::comparison::Comparison;
use crate::objective::{Divergence, Objective};
use crate::weights::Linear;

impl Ops<'_> {
    /// A transient buffer for the logits of a chunk.
    pub fn logits_buffer(&mut self, name: &str, tokens: u32, vocab: u32) -> Tensor {
        self.b.transient(self.name(name), self.x, u64::from(tokens) * u64::from(vocab))
    }

    /// `logits = hidden head^T`, the first `vocab` columns only: a wider teacher is cut before the softmax.
    pub fn logits(&mut self, name: &str, hidden: Tensor, head: &Linear, logits: Tensor, vocab: u32) {
        self.multiply(name, Factors::dense(hidden, head.weight.dense()), [vocab, head.k], (None, None), logits);
    }

    /// Losses of each token, and the gradient of the student's logits in their place. `teaching`: the teacher's logits, and
    /// where the divergence of each token goes.
    ///
    /// # Panics
    /// If `teaching` is not what the objective asks for.
    pub fn losses(
        &mut self,
        name: &str,
        objective: Objective,
        student: Tensor,
        teaching: Option<(Tensor, Tensor)>,
        (targets, ce): (Tensor, Tensor),
    ) {
        let (tokens, vocab) = (targets.elems as u32, (student.elems / targets.elems) as u32);
        let [student, targets, ce] = [student, targets, ce].map(Tensor::address);
        let micro = self.gradients().micro.address();
        let (Objective::Distill { alpha, temperature, beta }, Some((teacher, kd))) = (objective, teaching) else {
            assert!(!objective.has_teacher() && teaching.is_none(), "a teacher where nobody teaches, or none");
            let params = head_ce_params { logits: student, targets, micro, ce, tokens, vocab };
            return self.launch(name, HeadCe { x: self.x }, &params);
        };
        let (teacher, kd) = (teacher.address(), kd.address());
        let reverse = match Divergence::of(beta) {
            Divergence::Forward => false,
            Divergence::Reverse => true,
            Divergence::JensenShannon => {
                let reserved = 0;
                #[rustfmt::skip]
                let params = head_jsd_params {
                    teacher, student, targets, micro, kd, ce, tokens, vocab, alpha, temperature, beta, reserved,
                };
                return self.launch(name, HeadJsd { x: self.x }, &params);
            }
        };
        let params =
            head_distill_params { teacher, student, targets, micro, kd, ce, tokens, vocab, alpha, temperature };
        self.launch(name, HeadDistill { reverse, x: self.x }, &params);
    }

    /// Adds the mean losses of a micro-batch to `step_metrics`; 0 for a divergence that there is none of.
    pub fn mean_losses(&mut self, name: &str, kd: Option<Tensor>, ce: Tensor, metrics: Tensor) {
        let params = head_metrics_params {
            kd: kd.map_or(0, Tensor::address),
            ce: ce.address(),
            micro: self.gradients().micro.address(),
            metrics: metrics.address(),
            tokens: self.tokens(),
            reserved: 0,
        };
        self.launch(name, HeadMetrics { kd: kd.is_some() }, &params);
    }

    /// How far the predictions of a model are from those of another, a token each.
    pub fn compare(&mut self, name: &str, reference: Tensor, logits: Tensor, targets: Tensor, to: Comparison<Tensor>) {
        let Comparison { kl, agrees, reference_nll, nll } = to.map(Tensor::address);
        let params = head_compare_params {
            reference: reference.address(),
            logits: logits.address(),
            targets: targets.address(),
            kl,
            agrees,
            reference_nll,
            nll,
            tokens: targets.elems as u32,
            vocab: (logits.elems / targets.elems) as u32,
        };
        self.launch(name, HeadCompare { x: self.x }, &params);
    }

    /// Negative log likelihood of each target.
    pub fn nll(&mut self, name: &str, logits: Tensor, targets: Tensor, nll: Tensor) {
        let params = head_nll_params {
            logits: logits.address(),
            targets: targets.address(),
            nll: nll.address(),
            tokens: targets.elems as u32,
            vocab: (logits.elems / targets.elems) as u32,
        };
        self.launch(name, HeadNll { x: self.x }, &params);
    }
}
