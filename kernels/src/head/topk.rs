//! Losses from a teacher reduced to the probabilities of a few tokens, and the combined probability of the rest.
//!
//! With `K` known tokens the divergence is over `K + 1` outcomes, the last of probability `1 - sum p_i`, and so is the
//! student's: coarser than that over all tokens, never larger, and 0 only where the student agrees on every outcome. A
//! logit of the rest has the gradient of their outcome, shared as the student shares its probability among them.

use rayon::prelude::*;

use super::{SAMPLES, chunk, tolerance};
use crate::abi::{HeadTopk, MASKED_TOKEN, NO_TOKEN, head_topk_params, micro_scalars};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant};

impl Build for HeadTopk {
    one_variant!(Threads { threads: 512 });

    fn source(&self, _variant: Threads) -> Source {
        Source {
            path: "head/topk.cu",
            text: include_str!("topk.cu"),
            headers: &[("head_topk.h", include_str!("head_topk.h"))],
            common: &crate::COMMON,
        }
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens, variant.threads)
    }
}

impl Reference for HeadTopk {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        topk(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let shapes =
            SAMPLES[1..].iter().map(|(tokens, vocab)| (*tokens, *vocab, 16)).chain([(2, 33_000, 1000), (3, 2, 1)]);
        let objectives = [(0.5, 2.0, 0.0), (1.0, 1.0, 1.0), (0.3, 1.5, 0.5), (0.0, 1.0, 0.1)];
        let each = shapes.flat_map(|shape| objectives.map(|objective| (shape, objective)));
        each.map(|((tokens, vocab, keep), (alpha, temperature, beta))| Self::Params {
            tokens,
            vocab,
            keep,
            alpha,
            temperature,
            beta,
            ..Default::default()
        })
        .collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: chunk(batch), vocab: Batch::VOCAB, keep: 64, ..self.samples()[0] }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

/// Logarithms of an outcome's probability.
#[derive(Clone, Copy)]
struct Outcome {
    teacher: f64,
    student: f64,
}

impl Outcome {
    /// `ln(q / m)`, m of the teacher for a `beta` of 1.
    fn log_ratio(self, beta: f64) -> f64 {
        let larger = self.teacher.max(self.student);
        let mixed = beta * (self.teacher - larger).exp() + (1.0 - beta) * (self.student - larger).exp();
        self.student - if beta == 1.0 { self.teacher } else { larger + mixed.ln() }
    }

    /// The divergence, and the student's part of it.
    fn terms(self, beta: f64) -> [f64; 2] {
        let (p, q, ratio) = (self.teacher.exp(), self.student.exp(), self.log_ratio(beta));
        match beta {
            0.0 => [p * (self.teacher - self.student), 0.0],
            1.0 => [q * ratio, q * ratio],
            _ => [beta * p * (self.teacher - self.student + ratio) + (1.0 - beta) * q * ratio, q * ratio],
        }
    }
}

/// Returns the logarithm of the sum of the exponentials of logits over a temperature.
fn log_sum(logits: impl Iterator<Item = f32> + Clone, temperature: f64) -> f64 {
    let scaled = logits.map(|logit| f64::from(logit) / temperature);
    let top = scaled.clone().fold(f64::NEG_INFINITY, f64::max);
    top + scaled.map(|logit| (logit - top).exp()).sum::<f64>().ln()
}

fn topk(p: &head_topk_params, views: &mut Views<'_>) {
    let keep = p.keep as usize;
    let (ids, log_probs) = (views.read::<u32>("ids"), views.read::<f32>("log_probs"));
    let targets = views.read::<u32>("targets");
    let loss_scale = views.read::<micro_scalars>("micro")[0].loss_scale;
    let (kd, ce) = (views.write::<f32>("kd"), views.write::<f32>("ce"));
    let mut student = views.store("student");
    let known = ids.par_chunks(keep).zip(log_probs.par_chunks(keep + 1)).zip(targets);
    let rows = student.par_chunks_mut(p.vocab as usize).zip(known);
    rows.zip(kd.par_iter_mut().zip(ce)).for_each(|((row, ((ids, log_probs), target)), (kd, ce))| {
        if *target == MASKED_TOKEN {
            row.fill(0.0);
            (*kd, *ce) = (0.0, 0.0);
            return;
        }
        let (known, rest) = (ids.split(|id| *id == NO_TOKEN).next().unwrap_or_default(), log_probs[keep]);
        let known = (known, &log_probs[..known.len()], rest);
        let [divergence, of_target] = of_row(p, row, known, *target as usize, f64::from(loss_scale));
        (*kd, *ce) = (if divergence < 0.0 { 0.0 } else { divergence as f32 }, of_target as f32);
    });
}

/// Replaces a row of logits by their gradient; returns its divergence and cross entropy.
fn of_row(
    p: &head_topk_params,
    row: &mut [f32],
    (ids, log_probs, of_rest): (&[u32], &[f32], f32),
    target: usize,
    loss_scale: f64,
) -> [f64; 2] {
    let [alpha, temperature, beta] = [p.alpha, p.temperature, p.beta].map(f64::from);
    let mut is_known = vec![false; row.len()];
    ids.iter().for_each(|id| is_known[*id as usize] = true);
    let rest =
        log_sum(row.iter().zip(&is_known).filter(|(_, is_known)| !**is_known).map(|(logit, _)| *logit), temperature);
    let total = log_sum(row.iter().copied(), temperature);
    let plain = log_sum(row.iter().copied(), 1.0);
    let last = Outcome { teacher: of_rest.into(), student: rest - total };
    let outcomes = ids.iter().zip(log_probs).map(|(id, log_prob)| Outcome {
        teacher: (*log_prob).into(),
        student: f64::from(row[*id as usize]) / temperature - total,
    });
    let outcomes: Vec<Outcome> = outcomes.chain([last]).collect();
    let [divergence, of_student] =
        outcomes.iter().map(|it| it.terms(beta)).fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
    // Of a logit by the log of the student's probability of it.
    let of_logit = |log_q: f64, it: Outcome| match beta {
        0.0 => log_q.exp() - (log_q + it.teacher - it.student).exp(),
        1.0 => log_q.exp() * (it.log_ratio(beta) - of_student),
        _ => (1.0 - beta) * log_q.exp() * (it.log_ratio(beta) - of_student),
    };
    let ce = plain - f64::from(row[target]);
    let (kd_scale, ce_scale) = (loss_scale * alpha * temperature, loss_scale * (1.0 - alpha));
    let mut of = vec![last; row.len()];
    ids.iter().zip(&outcomes).for_each(|(id, outcome)| of[*id as usize] = *outcome);
    for (logit, outcome) in row.iter_mut().zip(of) {
        let value = f64::from(*logit);
        let of_kd = of_logit(value / temperature - total, outcome);
        *logit = (kd_scale * of_kd + ce_scale * (value - plain).exp()) as f32;
    }
    row[target] -= ce_scale as f32;
    [divergence, ce]
}
