//! The head: logits of a chunk of tokens, and what becomes of them.

use precast_kernels::abi::{gemm_fwd_params, head_distill_params, head_metrics_params, head_nll_params};
use precast_kernels::gemm::GemmFwd;
use precast_kernels::head::{HeadDistill, HeadMetrics, HeadNll};

use super::Ops;
use crate::buffer::Tensor;
use crate::weights::Linear;

impl Ops<'_> {
    /// A transient buffer for the logits of a chunk.
    pub fn logits_buffer(&mut self, name: &str, tokens: u32, vocab: u32) -> Tensor {
        self.b.transient(self.name(name), self.x, u64::from(tokens) * u64::from(vocab))
    }

    /// `logits = hidden head^T`, the first `vocab` columns only: a wider teacher is cut before the softmax.
    pub fn logits(&mut self, name: &str, hidden: Tensor, head: &Linear, logits: Tensor, vocab: u32) {
        let (w, k) = (head.weight.dense().tensor, head.k);
        let params = gemm_fwd_params {
            x: hidden.address(),
            w: w.address(),
            bias: 0,
            residual: 0,
            y: logits.address(),
            m: (hidden.elems / u64::from(k)) as u32,
            n: vocab,
            k,
            ..Default::default()
        };
        self.launch(name, GemmFwd { bias: false, residual: false, w: w.format, x: self.x }, &params);
    }

    /// Losses of each token, and the gradient of the student's logits in their place.
    pub fn distill(
        &mut self,
        name: &str,
        (teacher, student): (Tensor, Tensor),
        targets: Tensor,
        (kd, ce): (Tensor, Tensor),
        (alpha, temperature): (f32, f32),
    ) {
        let params = head_distill_params {
            teacher: teacher.address(),
            student: student.address(),
            targets: targets.address(),
            micro: self.gradients().micro.address(),
            kd: kd.address(),
            ce: ce.address(),
            tokens: targets.elems as u32,
            vocab: (student.elems / targets.elems) as u32,
            alpha,
            temperature,
        };
        self.launch(name, HeadDistill { x: self.x }, &params);
    }

    /// Adds the mean losses of a micro-batch to `step_metrics`.
    pub fn mean_losses(&mut self, name: &str, kd: Tensor, ce: Tensor, metrics: Tensor) {
        let params = head_metrics_params {
            kd: kd.address(),
            ce: ce.address(),
            micro: self.gradients().micro.address(),
            metrics: metrics.address(),
            tokens: self.tokens(),
            reserved: 0,
        };
        self.launch(name, HeadMetrics {}, &params);
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
