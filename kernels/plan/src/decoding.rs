//! Phases that compute one token of each row under a model, and what host and device say to each other in them.

use precast_kernels::Dtype;
use precast_kernels::delta_rule::CHUNK;

use crate::cache::{DecodeRows, RowState, Slots};
use crate::category;
use crate::config::ModelConfig;
use crate::head;
use crate::model::Model;
use crate::ops::Ops;
use crate::recipe::PlanError;
use crate::sampling::Sampling;
use precast_core::plan::{Builder, Lifetime, Tensor};

/// Rows of the decoding phases: GEMMs of few rows take as long as those of 64.
pub const BUCKETS: [u32; 4] = [64, 128, 256, 512];

/// Sequences that are decoded at a time, at most.
pub const MOST_SLOTS: u32 = BUCKETS[BUCKETS.len() - 1];

/// Tokens that end a sequence, at most.
pub const MOST_STOPS: u32 = 16;

/// Rows of prompts in a launch at most, where slots hold that many tokens: a forward pass of so many fills a GPU.
const PREFILL_ROWS: u32 = 2048;

/// Returns the name of the phase that stores keys and values of so many rows of prompts, and has no head.
pub fn prefill_phase(rows: u32) -> String {
    format!("prefill.{rows}")
}

/// Returns the name of the phase that computes so many rows, and draws a token for each.
pub fn decode_phase(rows: u32) -> String {
    format!("decode.{rows}")
}

/// Returns the smallest of [`BUCKETS`] with room for so many rows.
pub fn bucket(rows: u32) -> u32 {
    BUCKETS.into_iter().find(|bucket| rows <= *bucket).unwrap_or(MOST_SLOTS)
}

/// Launches of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Rows of the smallest phase: those of a step of decoding.
    pub few_rows: u32,
    /// Rows of the largest.
    pub most_rows: u32,
    /// Tokens at whose multiples a prompt may be divided: a chunk of the gated delta rule, whose kernel demands that; 1
    /// for a model without.
    pub chunk: u32,
}

impl Prefill {
    pub(crate) fn of(config: &ModelConfig, slots: Slots) -> Self {
        let few_rows = bucket(slots.count);
        let most_rows = slots.count.saturating_mul(slots.seq_len).min(PREFILL_ROWS).next_multiple_of(few_rows);
        Self { few_rows, most_rows, chunk: if config.has_delta_rule() { CHUNK } else { 1 } }
    }

    /// Returns the rows of each phase, ascending: four times those of the one before, up to the most.
    pub fn phases(self) -> impl Iterator<Item = u32> {
        let more = move |rows: &u32| (*rows < self.most_rows).then(|| (4 * rows).min(self.most_rows));
        std::iter::successors(Some(self.few_rows), more)
    }

    /// Returns the rows of the phase that a launch of so many takes: the smallest with room for them.
    pub fn phase_of(self, rows: usize) -> u32 {
        self.phases().find(|phase| rows <= *phase as usize).unwrap_or(self.most_rows)
    }

    /// Divides the rows of prompts, one behind the other, into launches; `position` is a row's in its prompt.
    ///
    /// # Panics
    /// If a launch has no room for a chunk.
    pub fn launches<'a, T>(&self, rows: &'a [T], position: impl Fn(&T) -> u32) -> Vec<&'a [T]> {
        assert!(self.most_rows >= self.chunk, "{self:?} has no room for a chunk");
        let (mut launches, mut rest) = (Vec::new(), rows);
        while !rest.is_empty() {
            let most = rest.len().min(self.most_rows as usize);
            let may_end = |end: &usize| rest.get(*end).is_none_or(|row| position(row).is_multiple_of(self.chunk));
            let end = (1..=most).rev().find(may_end).expect("prompts begin at position 0");
            let (launch, behind) = rest.split_at(end);
            launches.push(launch);
            rest = behind;
        }
        launches
    }
}

/// A request for phases that decode under a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeRequest {
    pub slots: Slots,
    pub sampling: Sampling,
}

/// The buffers that the host writes before [`prefill_phase`] and [`decode_phase`], and reads after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoding {
    pub slots: Slots,
    pub prefill: Prefill,
    /// Token of each row.
    pub ids: Tensor,
    pub rows: DecodeRows,
    pub state: RowState,
}

impl DecodeRequest {
    /// Largest vocabulary that `sample` draws from.
    pub const MOST_VOCAB: u32 = 1 << 18;

    /// True if a model's vocabulary is not too large.
    pub fn draws(config: &ModelConfig) -> bool {
        config.vocab <= Self::MOST_VOCAB
    }

    /// Refuses a model that cannot draw, and slots that are longer than the sequences that it has rotations for.
    ///
    /// # Panics
    /// If they are longer.
    pub(crate) fn check(&self, config: &ModelConfig, seq_len: u32) -> Result<(), PlanError> {
        assert!(self.slots.seq_len <= seq_len, "slots of {} tokens in a plan of {seq_len}", self.slots.seq_len);
        let refused = PlanError::Vocabulary { vocab: config.vocab, most: Self::MOST_VOCAB };
        if Self::draws(config) { Ok(()) } else { Err(refused) }
    }
}

impl Decoding {
    /// Declares the buffers.
    pub(crate) fn declare(
        b: &mut Builder,
        config: &ModelConfig,
        DecodeRequest { slots, .. }: DecodeRequest,
        lifetime: Lifetime,
    ) -> Self {
        let prefill = Prefill::of(config, slots);
        let most_rows = prefill.most_rows;
        let mut words = |name: &str, elems: u32| {
            b.lasting(format!("decode.{name}"), category::INPUTS, Dtype::U32, elems.into(), lifetime)
        };
        let ids = words("ids", most_rows);
        let rows = DecodeRows {
            slots: words("slots", most_rows),
            positions: words("positions", most_rows),
            seq_len: slots.seq_len,
            is_step: false,
        };
        let (sequences, ends) = (words("sequences", 2 * most_rows), words("ends", most_rows));
        let (stops, tokens) = (words("stops", MOST_STOPS), words("tokens", slots.count * slots.seq_len));
        let [log_probs, lses] = ["decode.log_probs", "decode.lses"]
            .map(|name| b.lasting(name, category::INPUTS, Dtype::F32, tokens.elems, lifetime));
        Self { slots, prefill, ids, rows, state: RowState { sequences, ends, stops, tokens, log_probs, lses } }
    }

    /// Lowers the phases, by a model that has a pool of keys and values.
    pub(crate) fn lower(&self, ops: &mut Ops<'_>, model: &Model<'_>, sampling: Sampling) {
        let sample = |ops: &mut Ops<'_>, logits, ids| ops.sample("sample", logits, sampling, (ids, self.state));
        phases(ops, model, self.prefill, (self.ids, self.rows), sample);
    }
}

/// Lowers each [`prefill_phase`], and [`decode_phase`] of each of [`BUCKETS`] up to the rows of all slots; `end` lowers
/// what becomes of a bucket's logits, and is given its ids.
pub(crate) fn phases(
    ops: &mut Ops<'_>,
    model: &Model<'_>,
    prefill: Prefill,
    (ids, rows): (Tensor, DecodeRows),
    end: impl Fn(&mut Ops<'_>, Tensor, Tensor),
) {
    for count in prefill.phases() {
        ops.phase(&prefill_phase(count));
        ops.decode(rows.first(count.into()));
        model.fill_cache(ops, ids.slice(0, count.into()));
    }
    for bucket in BUCKETS.into_iter().filter(|bucket| *bucket <= prefill.few_rows) {
        ops.phase(&decode_phase(bucket));
        ops.decode(DecodeRows { is_step: true, ..rows.first(bucket.into()) });
        let ids = ids.slice(0, bucket.into());
        let last = model.forward(ops, ids);
        ops.scope("head");
        let logits = head::logits(ops, last);
        end(ops, logits, ids);
    }
}
