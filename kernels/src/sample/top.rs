//! The most likely tokens of a row, and the rest of its probability.
//!
//! With logits `s` and a temperature `T`, `p = softmax(s / T)`: `ln p` of the `keep` tokens of the largest logits, the
//! largest first, of equal ones the smallest id first; behind them `ln` of the sum of `p` over all other tokens. Ids
//! have the bits of any GPU; log-probabilities are of sums in f32.

use std::cmp::Reverse;

use rayon::prelude::*;

use super::Row;
use super::host::rank_of;
use crate::abi::{SampleTop, sample_top_params};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Format, Geometry, Operand, Reference, Source, Tolerance, one_variant};

impl Build for SampleTop {
    one_variant!(Row { blocks: 2, threads: 512 });

    fn source(&self, _variant: Row) -> Source {
        Source {
            path: "sample/top.cu",
            text: include_str!("top.cu"),
            headers: &[
                ("sample_top.h", include_str!("sample_top.h")),
                ("sample/select.cuh", include_str!("select.cuh")),
            ],
            common: &crate::COMMON,
        }
    }

    fn geometry(&self, variant: Row, p: &Self::Params) -> Geometry {
        Geometry::linear(p.rows, variant.threads)
    }
}

impl Reference for SampleTop {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        top(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // One token beside all others, all but one, more than a CTA has threads, and a tail that f32 has no probability
        // for.
        [(2, 2, 1, 1.0), (3, 701, 700, 1.0), (4, 1024, 16, 2.0), (2, 4360, 1000, 1.5), (3, 701, 5, 0.01)]
            .map(|(rows, vocab, keep, temperature)| Self::Params {
                rows,
                vocab,
                keep,
                temperature,
                ..Default::default()
            })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { rows: batch.tokens().div_ceil(4), vocab: Batch::VOCAB, keep: 64, ..self.samples()[2] }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        match operand.format {
            Format::Dense(Dtype::F32) => Tolerance { norm: 1e-5, element: 2e-5, absolute: 1e-5 },
            _ => Tolerance::EXACT,
        }
    }
}

fn top(p: &sample_top_params, views: &mut Views<'_>) {
    let keep = p.keep as usize;
    let logits = views.load("logits");
    let (ids, log_probs) = (views.write::<u32>("ids"), views.write::<f32>("log_probs"));
    let rows = logits.par_chunks(p.vocab as usize);
    let outputs = ids.par_chunks_mut(keep).zip(log_probs.par_chunks_mut(keep + 1));
    rows.zip(outputs).for_each(|(logits, (ids, log_probs))| {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.select_nth_unstable_by_key(keep, |id| Reverse(rank_of(logits[*id], *id)));
        let (kept, rest) = order.split_at_mut(keep);
        kept.sort_unstable_by_key(|id| Reverse(rank_of(logits[*id], *id)));
        let scaled = |id: usize| f64::from(logits[id]) / f64::from(p.temperature);
        let log_sum = |ids: &[usize]| {
            let top = ids.iter().map(|id| scaled(*id)).fold(f64::NEG_INFINITY, f64::max);
            top + ids.iter().map(|id| (scaled(*id) - top).exp()).sum::<f64>().ln()
        };
        let (of_kept, of_rest) = (log_sum(kept), log_sum(rest));
        let total = of_kept.max(of_rest) + (-(of_kept - of_rest).abs()).exp().ln_1p();
        for (place, id) in kept.iter().enumerate() {
            (ids[place], log_probs[place]) = (*id as u32, (scaled(*id) - total) as f32);
        }
        log_probs[keep] = (of_rest - total) as f32;
    });
}
