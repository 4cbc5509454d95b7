//! The head: logits of a chunk of tokens, losses and scores.

use precast_kernels::abi::{
    HeadCeArgs, HeadCompareArgs, HeadDistillArgs, HeadJsdArgs, HeadMetricsArgs, HeadNllArgs, HeadTopkArgs,
    SampleScoreArgs, SampleTopArgs,
};
use precast_kernels::head::MASKED_LOGIT;
use precast_kernels::head::{HeadCe, HeadCompare, HeadDistill, HeadJsd, HeadMetrics, HeadNll, HeadTopk};
use precast_kernels::sample::{SampleScore, SampleTop};

use super::Ops;
use super::linear::Factors;
use crate::columns::{Columns, logit_columns};
use crate::comparison::TokenComparison;
use crate::objective::{Divergence, Objective};
use crate::predictions::{KnownTokens, Predictions, TopTokens};
use crate::weights::{Linear, Role, Weight};
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Lowers the columns of the logits of a vocabulary: their mask, where some are no tokens.
    pub fn columns(&mut self, vocab: u32) -> Columns {
        let count = logit_columns(vocab);
        let mask = (count > vocab).then(|| {
            let mask = self.statistics("mask", count.into());
            // The tokens' part is overwritten: it alone begins at a whole vector.
            self.fill("mask.columns", mask, MASKED_LOGIT);
            self.fill("mask.tokens", mask.slice(0, vocab.into()), 0.0);
            self.in_dtype("mask.cast", mask)
        });
        Columns { count, mask }
    }

    /// Declares a transient buffer for the logits of a chunk.
    pub fn logits_buffer(&mut self, name: &str, tokens: u32, columns: Columns) -> Tensor {
        self.b.transient(self.name(name), self.x, u64::from(tokens) * u64::from(columns.count))
    }

    /// Lowers `logits = hidden head^T`, these columns only: a wider teacher is cut before the softmax.
    pub fn logits(&mut self, name: &str, hidden: Tensor, head: &Linear, logits: Tensor, columns: Columns) {
        let mask = columns.mask.map(|tensor| Weight { tensor, role: Role::Frozen });
        let factors = Factors::dense(hidden, head.weight.dense());
        self.multiply(name, factors, [columns.count, head.k], (mask, None), logits);
    }

    /// Lowers the loss of each token, and replaces the student's logits by their gradient. `teaching`: the teacher's
    /// predictions, and the output for each token's divergence.
    ///
    /// # Panics
    /// If `teaching` does not match the objective.
    pub fn losses(
        &mut self,
        name: &str,
        objective: Objective,
        student: Tensor,
        teaching: Option<(Predictions, Tensor)>,
        (targets, ce): (Tensor, Tensor),
    ) {
        let (tokens, vocab) = (targets.elems as u32, (student.elems / targets.elems) as u32);
        let micro = self.gradients().micro;
        let (Objective::Distill { alpha, temperature, beta }, Some((teacher, kd))) = (objective, teaching) else {
            assert!(!objective.has_teacher() && teaching.is_none(), "a teacher where nobody teaches, or none");
            let args = HeadCeArgs { logits: student, targets, micro, ce, tokens, vocab };
            return self.launch(name, HeadCe { x: self.x }, args);
        };
        let teacher = match teacher {
            Predictions::Logits(logits) => logits,
            Predictions::Known(KnownTokens { ids, log_probs, keep }) => {
                #[rustfmt::skip]
                let args = HeadTopkArgs {
                    ids, log_probs, student, targets, micro, kd, ce, tokens, vocab, keep, alpha, temperature, beta,
                };
                return self.launch(name, HeadTopk { x: self.x }, args);
            }
        };
        let reverse = match Divergence::of(beta) {
            Divergence::Forward => false,
            Divergence::Reverse => true,
            Divergence::JensenShannon => {
                #[rustfmt::skip]
                let args = HeadJsdArgs {
                    teacher, student, targets, micro, kd, ce, tokens, vocab, alpha, temperature, beta,
                };
                return self.launch(name, HeadJsd { x: self.x }, args);
            }
        };
        let args = HeadDistillArgs { teacher, student, targets, micro, kd, ce, tokens, vocab, alpha, temperature };
        self.launch(name, HeadDistill { reverse, x: self.x }, args);
    }

    /// Adds the mean losses of a micro-batch to `step_metrics`; 0 for an absent divergence.
    pub fn mean_losses(&mut self, name: &str, kd: Option<Tensor>, ce: Tensor, metrics: Tensor) {
        let args = HeadMetricsArgs { kd, ce, micro: self.gradients().micro, metrics, tokens: self.tokens };
        self.launch(name, HeadMetrics { kd: kd.is_some() }, args);
    }

    /// Compares a model's predictions with another's, per token.
    pub fn compare(
        &mut self,
        name: &str,
        reference: Tensor,
        logits: Tensor,
        targets: Tensor,
        to: TokenComparison<Tensor>,
    ) {
        let TokenComparison { kl, agrees, reference_nll, nll } = to;
        let args = HeadCompareArgs {
            reference,
            logits,
            targets,
            kl,
            agrees,
            reference_nll,
            nll,
            tokens: targets.elems as u32,
            vocab: (logits.elems / targets.elems) as u32,
        };
        self.launch(name, HeadCompare { x: self.x }, args);
    }

    /// Lowers the most likely tokens of each row of logits: their ids, and their log-probabilities.
    pub fn top(&mut self, name: &str, logits: Tensor, [ids, log_probs]: [Tensor; 2], top: TopTokens) {
        let TopTokens { vocab, keep, temperature } = top;
        let rows = (logits.elems / u64::from(vocab)) as u32;
        let args = SampleTopArgs { logits, ids, log_probs, rows, vocab, keep, temperature };
        self.launch(name, SampleTop { x: self.x }, args);
    }

    /// Lowers log-probability and log-sum-exp of each target, as sampling has them.
    pub fn score(&mut self, name: &str, logits: Tensor, targets: Tensor, [log_prob, lse]: [Tensor; 2]) {
        let (rows, vocab) = (targets.elems as u32, (logits.elems / targets.elems) as u32);
        let args = SampleScoreArgs { logits, token: targets, log_prob, lse, rows, vocab };
        self.launch(name, SampleScore { x: self.x }, args);
    }

    /// Lowers the negative log likelihood of each target.
    pub fn nll(&mut self, name: &str, logits: Tensor, targets: Tensor, nll: Tensor) {
        let args = HeadNllArgs {
            logits,
            targets,
            nll,
            tokens: targets.elems as u32,
            vocab: (logits.elems / targets.elems) as u32,
        };
        self.launch(name, HeadNll { x: self.x }, args);
    }
}
