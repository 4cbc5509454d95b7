//! The head in chunks of tokens: the whole tokens x vocabulary matrix never exists.

use precast_kernels::Dtype;

use crate::category;
use crate::comparison::TokenComparison;
use crate::objective::Objective;
use crate::ops::{Adding, Ops};
use crate::predictions::{KnownTokens, Predictions, TopTokens};
use crate::weights::Linear;
use precast_core::plan::{Builder, Tensor};

/// A head and the hidden states that it reads.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    /// Its matrix has a row for each column of the logits.
    pub linear: &'a Linear,
    /// Tokens of its vocabulary.
    pub vocab: u32,
    /// `[tokens, hidden]`, in the dtype of activations.
    pub hidden: Tensor,
}

/// Predictions of a teacher.
#[derive(Clone, Copy)]
pub(crate) enum Teaching<'a> {
    /// Its head predicts.
    Head(Head<'a>),
    /// Probabilities of a few tokens are known.
    Known(KnownTokens),
}

impl KnownTokens {
    fn rows(self, first: u32, count: u32) -> Self {
        let Self { ids, log_probs, keep } = self;
        Self { ids: rows(ids, keep, first, count), log_probs: rows(log_probs, keep + 1, first, count), keep }
    }
}

impl Scores {
    /// Declares scores of so many tokens.
    pub(crate) fn declare(b: &mut Builder, tokens: u64) -> Self {
        let column = tokens.next_multiple_of(4);
        let all = b.persistent("scores", category::INPUTS, Dtype::F32, 2 * column);
        Self { all, log_prob: all.slice(0, tokens), lse: all.slice(column, tokens) }
    }
}

/// Results of losses besides gradients.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outputs {
    /// The mean losses.
    pub metrics: Option<Tensor>,
    pub scores: Option<Scores>,
}

/// Scores of the targets, by the bits that sampling has of tokens that it draws; 0 where masked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Both, in one buffer: log-probabilities first.
    pub all: Tensor,
    /// Log-probability of each target, nats.
    pub log_prob: Tensor,
    /// Log-sum-exp of its logits, nats.
    pub lse: Tensor,
}

/// Lowers losses, with the results that are asked for, the gradient of the student's head if it trains, and that of its
/// hidden states, which is returned.
///
/// # Panics
/// If the objective needs a teacher and there is none.
pub(crate) fn losses(
    ops: &mut Ops<'_>,
    objective: Objective,
    student: Head<'_>,
    teacher: Option<Teaching<'_>>,
    (targets, out): (Tensor, Outputs),
) -> Tensor {
    let (columns, tokens) = (ops.columns(student.vocab), ops.tokens);
    let chunk = chunk_tokens(tokens, columns.count, ops.x);
    let student_logits = ops.logits_buffer("student_logits", chunk, columns);
    let teacher = objective.has_teacher().then(|| teacher.expect("a run that learns from a teacher has one"));
    let head = teacher.and_then(|teacher| match teacher {
        Teaching::Head(head) => Some((head, ops.logits_buffer("teacher_logits", chunk, columns))),
        Teaching::Known(_) => None,
    });
    let kd = teacher.map(|_| ops.statistics("kd", tokens.into()));
    let ce = ops.statistics("ce", tokens.into());
    let dhidden = ops.rows("dhidden", student.linear.k);
    let head = head.map(|(head, logits)| (head, ops.dense("teacher", head.linear, columns.count), logits));
    let trains = student.linear.trains();
    let linear = match &head {
        _ if trains => student.linear.clone(),
        // The student's own base teaches: one matrix.
        Some((head, linear, ..)) if head.linear == student.linear => linear.clone(),
        _ => ops.dense("student", student.linear, columns.count),
    };
    for (index, first, count) in chunks(tokens, chunk) {
        let at = |part: &str| format!("{index}.{part}");
        let hidden = rows(student.hidden, student.linear.k, first, count);
        let s = rows(student_logits, columns.count, 0, count);
        let of_chunk = |column| rows(column, 1, first, count);
        let predictions = match (&head, teacher) {
            (Some((head, linear, logits)), _) => {
                let t = rows(*logits, columns.count, 0, count);
                ops.logits(&at("teacher"), rows(head.hidden, linear.k, first, count), linear, t, columns);
                Some(Predictions::Logits(t))
            }
            (None, Some(Teaching::Known(known))) => Some(Predictions::Known(known.rows(first, count))),
            (None, _) => None,
        };
        let teaching = predictions.zip(kd.map(of_chunk));
        ops.logits(&at("student"), hidden, &linear, s, columns);
        if let Some(Scores { log_prob, lse, .. }) = out.scores {
            ops.score(&at("score"), s, of_chunk(targets), [log_prob, lse].map(of_chunk));
        }
        // The gradient replaces the student's logits.
        ops.losses(&at("loss"), objective, s, teaching, (of_chunk(targets), of_chunk(ce)));
        if trains {
            let adding = if index > 0 { Adding::Always } else { Adding::AfterFirst };
            ops.weight_gradient(&index.to_string(), s, hidden, &linear, adding);
        }
        ops.input_gradient(&index.to_string(), s, &linear, rows(dhidden, linear.k, first, count));
    }
    if let Some(metrics) = out.metrics {
        ops.mean_losses("metrics", kd, ce, metrics);
    }
    dhidden
}

/// Lowers the losses of a teacher into `metrics`, as if it were its own student: its cross entropy over the first
/// `vocab` tokens, and a divergence of exactly 0. It uses the kernels of the student's losses, so that no run needs
/// others, and computes the logits twice, because gradients replace one copy.
pub(crate) fn teacher_losses(
    ops: &mut Ops<'_>,
    objective: Objective,
    teacher: Head<'_>,
    vocab: u32,
    (targets, metrics): (Tensor, Tensor),
) {
    let (columns, tokens) = (ops.columns(vocab), ops.tokens);
    let chunk = chunk_tokens(tokens, columns.count, ops.x);
    let [first_logits, second_logits] = ["logits", "logits_again"].map(|name| ops.logits_buffer(name, chunk, columns));
    let [kd, ce] = ["kd", "ce"].map(|name| ops.statistics(name, tokens.into()));
    let linear = ops.dense("teacher", teacher.linear, columns.count);
    for (index, first, count) in chunks(tokens, chunk) {
        let at = |part: &str| format!("{index}.{part}");
        let of_chunk = |column| rows(column, 1, first, count);
        let hidden = rows(teacher.hidden, linear.k, first, count);
        let [t, s] = [("teacher", first_logits), ("again", second_logits)].map(|(name, buffer)| {
            let logits = rows(buffer, columns.count, 0, count);
            ops.logits(&at(name), hidden, &linear, logits, columns);
            logits
        });
        let teaching = Some((Predictions::Logits(t), of_chunk(kd)));
        ops.losses(&at("loss"), objective, s, teaching, (of_chunk(targets), of_chunk(ce)));
    }
    ops.mean_losses("metrics", Some(kd), ce, metrics);
}

/// Lowers the most likely tokens of hidden states: their ids, `[tokens, keep]`, and their log-probabilities, `[tokens,
/// keep + 1]`.
pub(crate) fn top(ops: &mut Ops<'_>, head: Head<'_>, top: TopTokens) -> [Tensor; 2] {
    let (tokens, keep, columns) = (ops.tokens, top.keep, ops.columns(top.vocab));
    let chunk = chunk_tokens(tokens, columns.count, ops.x);
    let of_rows = |width: u32| u64::from(tokens) * u64::from(width);
    let (ids, log_probs) = (ops.words("ids", of_rows(keep)), ops.statistics("log_probs", of_rows(keep + 1)));
    let buffer = ops.logits_buffer("logits", chunk, columns);
    for (index, first, count) in chunks(tokens, chunk) {
        let logits = rows(buffer, columns.count, 0, count);
        let hidden = rows(head.hidden, head.linear.k, first, count);
        ops.logits(&format!("{index}.logits"), hidden, head.linear, logits, columns);
        let to = [rows(ids, keep, first, count), rows(log_probs, keep + 1, first, count)];
        ops.top(&format!("{index}.top"), logits, to, TopTokens { vocab: columns.count, ..top });
    }
    [ids, log_probs]
}

/// Compares predictions of a reference with another's, each of a head on its own hidden states, over the first `vocab`
/// tokens.
pub(crate) fn compare(
    ops: &mut Ops<'_>,
    [reference, other]: [Head<'_>; 2],
    vocab: u32,
    targets: Tensor,
) -> TokenComparison<Tensor> {
    let (columns, tokens) = (ops.columns(vocab), ops.tokens);
    let chunk = chunk_tokens(tokens, columns.count, ops.x);
    let to = TokenComparison::NAMES.map(|name| ops.column(name));
    let [reference_logits, logits] = ["reference_logits", "logits"].map(|name| ops.logits_buffer(name, chunk, columns));
    let linear = ops.dense("logits", other.linear, columns.count);
    let of_reference = match reference.linear == other.linear {
        // Two forms of a model have one head.
        true => linear.clone(),
        false => ops.dense("reference", reference.linear, columns.count),
    };
    for (index, first, count) in chunks(tokens, chunk) {
        let at = |part: &str| format!("{index}.{part}");
        let of_chunk = |column| rows(column, 1, first, count);
        let sides = [
            ("reference", reference.hidden, &of_reference, reference_logits),
            ("logits", other.hidden, &linear, logits),
        ];
        let [r, s] = sides.map(|(name, hidden, linear, logits)| {
            let logits = rows(logits, columns.count, 0, count);
            ops.logits(&at(name), rows(hidden, linear.k, first, count), linear, logits, columns);
            logits
        });
        ops.compare(&at("compare"), r, s, of_chunk(targets), to.map(of_chunk));
    }
    to
}

/// Lowers the logits of all tokens, `[tokens, columns]`.
pub(crate) fn logits(ops: &mut Ops<'_>, head: Head<'_>) -> Tensor {
    let (columns, tokens) = (ops.columns(head.vocab), ops.tokens);
    let logits = ops.logits_buffer("logits", tokens, columns);
    let linear = ops.dense("logits", head.linear, columns.count);
    ops.logits("logits", head.hidden, &linear, logits, columns);
    logits
}

/// Lowers the logits of all tokens into a buffer that keeps them.
pub(crate) fn keep_logits(ops: &mut Ops<'_>, head: Head<'_>, kept: Tensor) {
    let (columns, tokens) = (ops.columns(head.vocab), ops.tokens);
    let linear = ops.dense("logits", head.linear, columns.count);
    for (index, first, count) in chunks(tokens, chunk_tokens(tokens, columns.count, ops.x)) {
        let hidden = rows(head.hidden, linear.k, first, count);
        let kept = rows(kept, columns.count, first, count);
        ops.logits(&format!("{index}.logits"), hidden, &linear, kept, columns);
    }
}

/// Lowers negative log likelihoods of the targets into `nll`.
pub(crate) fn score(ops: &mut Ops<'_>, head: Head<'_>, targets: Tensor, nll: Tensor) {
    let (columns, tokens) = (ops.columns(head.vocab), ops.tokens);
    let chunk = chunk_tokens(tokens, columns.count, ops.x);
    let buffer = ops.logits_buffer("logits", chunk, columns);
    let linear = ops.dense("logits", head.linear, columns.count);
    for (index, first, count) in chunks(tokens, chunk) {
        let logits = rows(buffer, columns.count, 0, count);
        let hidden = rows(head.hidden, linear.k, first, count);
        let [targets, nll] = [targets, nll].map(|column| rows(column, 1, first, count));
        ops.logits(&format!("{index}.logits"), hidden, &linear, logits, columns);
        ops.nll(&format!("{index}.nll"), logits, targets, nll);
    }
}

/// Largest buffer of logits: 2048 tokens of a vocabulary of 151936 in bf16. Each chunk reads the head's weights and
/// reads and writes their gradient, so larger chunks move fewer bytes and give the GEMMs more tiles.
const LOGITS_BYTES: u64 = 640 << 20;

/// Returns the tokens per chunk: as few chunks as [`LOGITS_BYTES`] allows, about equally large, in whole tiles of 128
/// if that fits and aligned to 8 in any case.
fn chunk_tokens(tokens: u32, columns: u32, dtype: Dtype) -> u32 {
    // No vocabulary exceeds 2^20, so at least 64 tokens fit.
    let most = LOGITS_BYTES / (u64::from(columns) * dtype.bytes());
    let unit = if most >= 128 { 128 } else { 8 };
    let chunks = u64::from(tokens).div_ceil(most / unit * unit);
    let chunk = u64::from(tokens).div_ceil(chunks).next_multiple_of(unit);
    chunk.min(u64::from(tokens)) as u32
}

/// Returns each chunk's number, first token and length.
fn chunks(tokens: u32, chunk: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    (0..tokens.div_ceil(chunk)).map(move |index| {
        let first = index * chunk;
        (index, first, chunk.min(tokens - first))
    })
}

/// Returns rows `first..first + count` of a tokens x width tensor.
fn rows(tensor: Tensor, width: u32, first: u32, count: u32) -> Tensor {
    tensor.slice(u64::from(first) * u64::from(width), u64::from(count) * u64::from(width))
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
