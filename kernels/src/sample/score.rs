//! Log-probabilities of given tokens, as sampling has them.

use rayon::prelude::*;

use super::Row;
use super::host::likelihood;
use crate::abi::{MASKED_TOKEN, SampleScore, sample_score_params};
use crate::host::{Views, vectorized};
use crate::{Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance, one_variant};

impl Build for SampleScore {
    one_variant!(Row { blocks: 2, threads: 512 });

    fn source(&self, _variant: Row) -> Source {
        Source {
            path: "sample/score.cu",
            text: include_str!("score.cu"),
            headers: &[
                ("sample_score.h", include_str!("sample_score.h")),
                ("sample/polynomial.cuh", include_str!("polynomial.cuh")),
                ("sample/select.cuh", include_str!("select.cuh")),
            ],
            common: &crate::COMMON,
        }
    }

    fn geometry(&self, variant: Row, p: &Self::Params) -> Geometry {
        Geometry::linear(p.rows, variant.threads)
    }
}

impl Reference for SampleScore {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        score(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(5, 1), (9, 701), (4, 1024), (3, 4360)]
            .map(|(rows, vocab)| Self::Params { rows, vocab, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { rows: batch.tokens().div_ceil(16), vocab: Batch::VOCAB, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}

fn score(p: &sample_score_params, views: &mut Views<'_>) {
    let (logits, tokens) = (views.load("logits"), views.read::<u32>("token"));
    let [log_probs, lses] = ["log_prob", "lse"].map(|name| views.write::<f32>(name));
    let rows = logits.par_chunks(p.vocab as usize).zip(tokens);
    rows.zip(log_probs.par_iter_mut().zip(lses)).for_each(|((logits, token), (log_prob, lse))| {
        let of_row = if *token == MASKED_TOKEN { None } else { vectorized(|| likelihood(logits)) };
        (*log_prob, *lse) = of_row.map_or((0.0, 0.0), |of_row| of_row.of(logits[*token as usize]));
    });
}
