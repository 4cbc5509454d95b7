//! The plan that checks decoding: it computes sequences whole and keeps all logits, decodes the same tokens, and counts
//! the logits whose bits differ.

use precast_kernels::{Arch, Dtype, KERNELS};

use crate::bounds;
use crate::cache::{self, BitCounts, DecodeRows, Slots};
use crate::category;
use crate::decoding::{Prefill, phases};
use crate::evaluation::{self, SCORE};
use crate::head;
use crate::lowered::Lowered;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::recipe::{PlanError, Precision};
use crate::sequences::{Sequences, Shape};
use crate::training::Student;
use crate::weights::AdapterWeights;
use precast_core::plan::{Builder, Category, Lifetime, Tensor};

/// A plan that checks decoding, and the buffers that its host side writes and reads.
/// The phase [`SCORE`] computes all sequences, those of a generation decode.
pub type DecodeCheckPlan = Lowered<DecodeCheckBuffers>;

/// Buffers of a [`DecodeCheckPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeCheckBuffers {
    /// The model, in the precision of the run.
    pub model: Resident,
    /// Its adapters, if any.
    pub adapters: Option<AdapterWeights>,
    pub slots: Slots,
    pub prefill: Prefill,
    /// Tokens of all sequences, `[slots, seq_len]`: in slots, as decoding has them.
    pub sequences: Tensor,
    /// Their places, which the host sends once.
    pub whole: Sequences,
    /// Logits of all tokens, `[slots, seq_len, columns]`.
    pub expected: Tensor,
    /// Token of each row.
    pub ids: Tensor,
    pub rows: DecodeRows,
    /// Counts of each token that was decoded.
    pub counts: BitCounts<Tensor>,
}

impl Lowered<DecodeCheckBuffers> {
    /// Lowers a model that decodes in `slots`.
    ///
    /// # Errors
    /// [`PlanError`] if a slot is longer than the model supports, or adapters do not fit the model.
    pub fn new(model: Student<'_>, slots: Slots, precision: Precision, arch: Arch) -> Result<Self, PlanError> {
        let Student { config, formats, .. } = model;
        let (prefill, dtype) = (Prefill::of(config, slots), precision.dtype());
        let most_rows = prefill.most_rows;
        evaluation::check((config, formats), (slots.count, slots.seq_len), precision)?;
        let shape = slots.count * slots.seq_len;
        let tokens = u64::from(shape);
        let logits = tokens * u64::from(config.logit_columns());
        bounds::refuse(u128::from(logits) * u128::from(dtype.bytes()))?;
        let mut b = Builder::new(&KERNELS, arch);
        let (weights, adapters) = evaluation::frozen(&mut b, model, dtype)?;
        let mut words = |name: &str, elems: u64| b.persistent(name, category::INPUTS, Dtype::U32, elems);
        let (sequences, ids) = (words("sequences", tokens), words("ids", most_rows.into()));
        let [in_slots, positions] = ["slots", "positions"].map(|name| words(name, most_rows.into()));
        let rows = DecodeRows { slots: in_slots, positions, seq_len: slots.seq_len, is_step: false };
        let counts = BitCounts { compared: words("compared", tokens), differing: words("differing", tokens) };
        let whole = Sequences::declare(&mut b, Shape::full(slots.count, slots.seq_len));
        let expected = b.persistent("expected", Category::ACTIVATIONS, dtype, logits);
        let mut resident = Resident::new(&mut b, "model", config, weights, (shape.max(most_rows), slots.seq_len));
        let caches = cache::pool(&mut b, config, slots, (dtype, Lifetime::Persistent));
        let ops = &mut Ops::new(&mut b, shape, dtype, None).of(whole);
        if formats.is_int8() {
            resident.staged = Model { name: "model", config, resident: &resident }.quantize(ops, None).0;
        }
        ops.phase(SCORE);
        let last = Model { name: "model", config, resident: &resident }.forward(ops, sequences);
        ops.scope("head");
        head::keep_logits(ops, last, expected);
        resident.caches = caches;
        let ops = &mut Ops::new(&mut b, most_rows, dtype, None);
        let model = Model { name: "model", config, resident: &resident };
        phases(ops, &model, prefill, (ids, rows), |ops, logits, _| {
            ops.compare_bits("compare", logits, expected, counts);
        });
        Self::finish(
            b,
            DecodeCheckBuffers {
                model: resident,
                adapters,
                slots,
                prefill,
                sequences,
                whole,
                expected,
                ids,
                rows,
                counts,
            },
        )
    }
}
