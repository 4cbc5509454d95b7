//! The distillation head in chunks of tokens: never the whole tokens x vocabulary matrix.

use precast_kernels::Dtype;
use precast_kernels::abi::{gemm_fwd_params, head_distill_params, head_metrics_params, head_nll_params};
use precast_kernels::gemm::GemmFwd;
use precast_kernels::head::{HeadDistill, HeadMetrics, HeadNll};

use crate::backward::{Gradients, LinearGrad};
use crate::forward::Model;
use crate::plan::{Builder, Tensor};
use crate::recipe::Recipe;

/// Largest buffer of logits: 2048 tokens of a vocabulary of 151936 in bf16. Each chunk reads the head's weights and
/// reads and writes their gradient, so larger chunks move fewer bytes and give the products more tiles.
const LOGITS_BYTES: u64 = 640 << 20;

/// Tokens in a chunk: as few chunks as [`LOGITS_BYTES`] allows, about equally large, in whole tiles of 128
/// where that fits and aligned to 8 in any case.
pub fn chunk_tokens(tokens: u32, vocab: u32, dtype: Dtype) -> u32 {
    // No vocabulary exceeds 2^20, so at least 64 tokens fit.
    let most = LOGITS_BYTES / (u64::from(vocab) * dtype.bytes());
    let unit = if most >= 128 { 128 } else { 8 };
    let chunks = u64::from(tokens).div_ceil(most / unit * unit);
    let chunk = u64::from(tokens).div_ceil(chunks).next_multiple_of(unit);
    chunk.min(u64::from(tokens)) as u32
}

/// A chunk: its number, first token and length.
fn chunks(tokens: u32, chunk: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    (0..tokens.div_ceil(chunk)).map(move |index| {
        let first = index * chunk;
        (index, first, chunk.min(tokens - first))
    })
}

/// Rows `first..first + count` of a tokens x width tensor.
fn rows(tensor: Tensor, width: u32, first: u32, count: u32) -> Tensor {
    tensor.slice(u64::from(first) * u64::from(width), u64::from(count) * u64::from(width))
}

/// `logits = hidden head^T`, the first `vocab` columns only: a wider teacher is cut before the softmax.
fn logits(b: &mut Builder, label: &str, model: &Model<'_>, hidden: Tensor, logits: Tensor, vocab: u32) {
    let k = model.config.hidden;
    let params = gemm_fwd_params {
        x: hidden.address(),
        w: model.weight(model.parameters.head).address(),
        bias: 0,
        residual: 0,
        y: logits.address(),
        m: (hidden.elems / u64::from(k)) as u32,
        n: vocab,
        k,
        ..Default::default()
    };
    b.launch(label, GemmFwd { bias: false, residual: false, w: model.dtype().into(), x: model.dtype() }, &params);
}

/// Inputs and outputs of the head that outlive it.
pub(crate) struct HeadBuffers {
    /// Next tokens.
    pub targets: Tensor,
    /// `step_metrics`.
    pub metrics: Tensor,
}

/// Losses, and the gradient of the student's final hidden states, which is returned.
pub(crate) fn distill(
    b: &mut Builder,
    (student, student_hidden): (&Model<'_>, Tensor),
    (teacher, teacher_hidden): (&Model<'_>, Tensor),
    g: &Gradients,
    io: &HeadBuffers,
    recipe: &Recipe,
) -> Tensor {
    let (tokens, vocab, dtype) = (student.tokens(), student.config.vocab, student.dtype());
    let (h, teacher_h) = (student.config.hidden, teacher.config.hidden);
    let chunk = chunk_tokens(tokens, vocab, dtype);
    let area = u64::from(chunk) * u64::from(vocab);
    let student_logits = b.transient("head.student_logits", dtype, area);
    let teacher_logits = b.transient("head.teacher_logits", dtype, area);
    let kd = b.transient("head.kd", Dtype::F32, u64::from(tokens));
    let ce = b.transient("head.ce", Dtype::F32, u64::from(tokens));
    let dhidden = student.rows(b, "head.dhidden", h);
    for (index, first, count) in chunks(tokens, chunk) {
        let hidden = rows(student_hidden, h, first, count);
        let s = rows(student_logits, vocab, 0, count);
        let t = rows(teacher_logits, vocab, 0, count);
        logits(b, &format!("head.{index}.teacher"), teacher, rows(teacher_hidden, teacher_h, first, count), t, vocab);
        logits(b, &format!("head.{index}.student"), student, hidden, s, vocab);
        let params = head_distill_params {
            teacher: t.address(),
            student: s.address(),
            targets: rows(io.targets, 1, first, count).address(),
            micro: g.micro.address(),
            kd: rows(kd, 1, first, count).address(),
            ce: rows(ce, 1, first, count).address(),
            tokens: count,
            vocab,
            alpha: recipe.alpha,
            temperature: recipe.temperature,
        };
        b.launch(format!("head.{index}.distill"), HeadDistill { x: dtype }, &params);
        let linear = LinearGrad { dy: s, x: hidden, weight: student.parameters.head, bias: None, n: vocab, k: h };
        let label = format!("head.{index}");
        student.wgrad(b, &label, g, &linear, index > 0);
        student.dgrad_into(b, &label, g, &linear, rows(dhidden, h, first, count));
    }
    let params = head_metrics_params {
        kd: kd.address(),
        ce: ce.address(),
        micro: g.micro.address(),
        metrics: io.metrics.address(),
        tokens,
        reserved: 0,
    };
    b.launch("head.metrics", HeadMetrics {}, &params);
    dhidden
}

/// Negative log likelihoods of the targets into `nll`.
pub(crate) fn score(b: &mut Builder, model: &Model<'_>, hidden: Tensor, targets: Tensor, nll: Tensor) {
    let (tokens, vocab, h) = (model.tokens(), model.config.vocab, model.config.hidden);
    let chunk = chunk_tokens(tokens, vocab, model.dtype());
    let buffer = b.transient("head.logits", model.dtype(), u64::from(chunk) * u64::from(vocab));
    for (index, first, count) in chunks(tokens, chunk) {
        let of_chunk = rows(buffer, vocab, 0, count);
        logits(b, &format!("head.{index}.logits"), model, rows(hidden, h, first, count), of_chunk, vocab);
        let params = head_nll_params {
            logits: of_chunk.address(),
            targets: rows(targets, 1, first, count).address(),
            nll: rows(nll, 1, first, count).address(),
            tokens: count,
            vocab,
        };
        b.launch(format!("head.{index}.nll"), HeadNll { x: model.dtype() }, &params);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_even_whole_tiles_within_the_limit() {
        assert_eq!(chunk_tokens(256, 512, Dtype::F32), 256);
        assert_eq!(chunk_tokens(1, 151_936, Dtype::Bf16), 1);
        let chunk = chunk_tokens(8192, 151_936, Dtype::Bf16);
        assert_eq!((chunk, 8192_u32.div_ceil(chunk)), (2048, 4));
        assert!(u64::from(chunk) * 151_936 * 2 <= LOGITS_BYTES);
        assert_eq!(chunks(10, 4).collect::<Vec<_>>(), [(0, 0, 4), (1, 4, 4), (2, 8, 2)]);
    }
}
