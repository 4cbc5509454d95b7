//! Rows on their way to the tokens that were drawn for them.

use crate::abi::{IDLE_SLOT, NO_TOKEN, SampleAdvance, sample_advance_params};
use crate::host::Views;
use crate::{Batch, Build, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant};

impl Build for SampleAdvance {
    one_variant!(Threads { threads: 128 });

    fn source(&self, _variant: Threads) -> Source {
        Source {
            path: "sample/advance.cu",
            text: include_str!("advance.cu"),
            headers: &[
                ("kv.h", include_str!("../kv/kv.h")),
                ("sample.h", include_str!("sample.h")),
                ("sample_advance.h", include_str!("sample_advance.h")),
            ],
            common: &crate::COMMON,
        }
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.rows.div_ceil(variant.threads), variant.threads)
    }
}

impl Reference for SampleAdvance {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        advance(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [(1, 1, 1, 1), (5, 7, 9, 3), (130, 150, 17, 4)]
            .map(|(rows, slots, seq_len, stops)| Self::Params { rows, slots, seq_len, stops, ..Default::default() })
            .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        let rows = batch.tokens().div_ceil(16);
        Self::Params { rows, slots: rows, seq_len: 16, stops: 4, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}

fn advance(p: &sample_advance_params, views: &mut Views<'_>) {
    let [drawn, stops] = ["token", "stop"].map(|name| views.read::<u32>(name));
    let [of_drawn, of_logits] = ["log_prob", "lse"].map(|name| views.read::<f32>(name));
    let [slots, positions, ids, ends, tokens] =
        ["slot", "position", "id", "end", "tokens"].map(|name| views.write::<u32>(name));
    let [log_probs, lses] = ["log_probs", "lses"].map(|name| views.write::<f32>(name));
    for row in 0..p.rows as usize {
        let (slot, token, position) = (slots[row], drawn[row], positions[row] + 1);
        if slot == IDLE_SLOT {
            continue;
        }
        if token == NO_TOKEN {
            (slots[row], ends[row]) = (IDLE_SLOT, NO_TOKEN);
            continue;
        }
        if position + 1 >= ends[row] || stops.contains(&token) {
            slots[row] = IDLE_SLOT;
        }
        if position >= p.seq_len {
            continue;
        }
        (ids[row], positions[row]) = (token, position);
        let place = slot as usize * p.seq_len as usize + position as usize;
        (tokens[place], log_probs[place], lses[place]) = (token, of_drawn[row], of_logits[row]);
    }
}
