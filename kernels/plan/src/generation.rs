//! The plan that writes text under one model: a pool of keys and values, and phases that compute one token of each row.

use precast_kernels::{Arch, Dtype};

use crate::bounds::{self, ModelPart};
use crate::buffer::{Category, Tensor};
use crate::builder::Builder;
use crate::cache::{self, DecodeRows, RowState};
use crate::evaluation;
use crate::head;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::plan::Plan;
use crate::recipe::{PlanError, Precision, check_tokens};
use crate::sampling::Sampling;
use crate::training::Student;
use crate::weights::AdapterWeights;

/// Rows of the decoding phases: GEMMs of few rows take as long as those of 64.
pub const BUCKETS: [u32; 4] = [64, 128, 256, 512];

/// The phase that stores keys and values of prompts: as many rows as there are at most, and no head.
pub const PREFILL: &str = "prefill";

/// Returns the name of the phase that computes so many rows, and draws a token for each.
pub fn decode_phase(rows: u32) -> String {
    format!("decode.{rows}")
}

/// Returns the smallest of [`BUCKETS`] with room for so many rows.
pub fn bucket(rows: u32) -> u32 {
    BUCKETS.into_iter().find(|bucket| rows <= *bucket).unwrap_or(BUCKETS[BUCKETS.len() - 1])
}

/// Sequences that are written at a time, and tokens of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    pub count: u32,
    pub seq_len: u32,
}

/// A plan for generation, and the buffers that its host side writes and reads.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationPlan {
    /// The plan, with the phases [`PREFILL`] and [`decode_phase`].
    pub plan: Plan,
    /// The model, in the precision of the run.
    pub model: Resident,
    /// Its adapters, if any.
    pub adapters: Option<AdapterWeights>,
    pub slots: Slots,
    /// Rows at most.
    pub most_rows: u32,
    /// Token of each row.
    pub ids: Tensor,
    pub rows: DecodeRows,
    pub state: RowState,
}

impl AsRef<Plan> for GenerationPlan {
    fn as_ref(&self) -> &Plan {
        &self.plan
    }
}

impl AsMut<Plan> for GenerationPlan {
    fn as_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }
}

impl GenerationPlan {
    /// Largest vocabulary that `sample` draws from.
    pub const MOST_VOCAB: u32 = 1 << 18;

    /// Lowers a model that generates into `slots`, until one of `stops` tokens.
    ///
    /// # Errors
    /// [`PlanError`] if a slot is longer than the model supports, its vocabulary too large, or adapters do not fit the model.
    pub fn new(
        model: Student<'_>,
        (slots, stops): (Slots, u32),
        sampling: Sampling,
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        let Student { config, formats, .. } = model;
        let (most_rows, dtype) = (bucket(slots.count), precision.dtype());
        check_tokens(config, "model", 1, slots.seq_len)?;
        if config.vocab > Self::MOST_VOCAB {
            return Err(PlanError::Vocabulary { vocab: config.vocab, most: Self::MOST_VOCAB });
        }
        formats.check(config, dtype)?;
        let part = ModelPart { config, parameter_bytes: dtype.bytes(), kept_layers: 1 };
        bounds::check(&[part], most_rows, dtype.bytes())?;
        let mut b = Builder::new(arch);
        let (weights, adapters) = evaluation::frozen(&mut b, model, dtype)?;
        let (ids, rows, state) = buffers(&mut b, slots, stops, most_rows);
        let mut resident = Resident::new(&mut b, "model", config, weights, slots.seq_len);
        resident.caches = cache::pool(&mut b, config, (slots.count, slots.seq_len), dtype);
        let ops = &mut Ops::new(&mut b, (most_rows, 1), dtype, None);
        if formats.is_int8() {
            resident.staged = Model { name: "model", config, resident: &resident }.quantize(ops, None).0;
        }
        let model = Model { name: "model", config, resident: &resident };
        ops.phase(PREFILL);
        ops.decode(rows);
        model.fill_cache(ops, ids);
        for bucket in BUCKETS.into_iter().filter(|bucket| *bucket <= most_rows) {
            ops.phase(&decode_phase(bucket));
            ops.batch = bucket;
            ops.decode(rows.first(bucket.into()));
            let ids = ids.slice(0, bucket.into());
            let last = model.forward(ops, ids);
            ops.scope("head");
            let logits = head::logits(ops, last);
            ops.sample("sample", logits, sampling, (ids, state));
        }
        let plan = b.finish();
        evaluation::check_bytes(&plan)?;
        Ok(Self { plan, model: resident, adapters, slots, most_rows, ids, rows, state })
    }
}

/// Declares what host and device say to each other: the token of each row, its place, and what becomes of it.
fn buffers(b: &mut Builder, slots: Slots, stops: u32, most_rows: u32) -> (Tensor, DecodeRows, RowState) {
    let mut words = |name: &str, elems: u32| b.persistent(name, Category::Inputs, Dtype::U32, elems.into());
    let ids = words("ids", most_rows);
    let rows = DecodeRows {
        slots: words("slots", most_rows),
        positions: words("positions", most_rows),
        seq_len: slots.seq_len,
    };
    let (sequences, ends) = (words("sequences", 2 * most_rows), words("ends", most_rows));
    let (stops, tokens) = (words("stops", stops.max(1)), words("tokens", slots.count * slots.seq_len));
    let log_probs = b.persistent("log_probs", Category::Inputs, Dtype::F32, tokens.elems);
    (ids, rows, RowState { sequences, ends, stops, tokens, log_probs })
}
