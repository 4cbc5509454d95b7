//! The plan that writes text under one model.

use precast_kernels::{Arch, KERNELS};

use crate::bounds::{self, ModelPart};
use crate::cache;
use crate::decoding::{DecodeRequest, Decoding, Prefill};
use crate::evaluation;
use crate::lowered::Lowered;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::recipe::{PlanError, Precision, check_tokens};
use crate::training::Student;
use crate::weights::AdapterWeights;
use precast_core::plan::{Builder, Lifetime};

/// A plan for generation, and the buffers that its host side writes and reads.
/// It has the phases of [`Decoding`].
pub type GenerationPlan = Lowered<GenerationBuffers>;

/// Buffers of a [`GenerationPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationBuffers {
    /// The model, in the precision of the run.
    pub model: Resident,
    /// Its adapters, if any.
    pub adapters: Option<AdapterWeights>,
    pub decoding: Decoding,
}

impl Lowered<GenerationBuffers> {
    /// Lowers a model that generates.
    ///
    /// # Errors
    /// [`PlanError`] if a slot is longer than the model supports, its vocabulary too large, or adapters do not fit the
    /// model.
    pub fn new(
        model: Student<'_>,
        request: DecodeRequest,
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        let Student { config, formats, .. } = model;
        let DecodeRequest { slots, sampling } = request;
        let dtype = precision.dtype();
        check_tokens(config, "model", 1, slots.seq_len)?;
        request.check(config, slots.seq_len)?;
        formats.check(config, dtype)?;
        let part = ModelPart { config, parameter_bytes: dtype.bytes(), kept_layers: 1 };
        let most_rows = Prefill::of(config, slots).most_rows;
        bounds::check(&[part], most_rows, dtype.bytes())?;
        let mut b = Builder::new(&KERNELS, arch);
        let (weights, adapters) = evaluation::frozen(&mut b, model, dtype)?;
        // No other stage shares their memory.
        let decoding = Decoding::declare(&mut b, config, request, Lifetime::Persistent);
        let mut resident = Resident::new(&mut b, "model", config, weights, (most_rows, slots.seq_len));
        resident.caches = cache::pool(&mut b, config, slots, (dtype, Lifetime::Persistent));
        let ops = &mut Ops::new(&mut b, most_rows, dtype, None);
        if formats.is_int8() {
            resident.staged = Model { name: "model", config, resident: &resident }.quantize(ops, None).0;
        }
        decoding.lower(ops, &Model { name: "model", config, resident: &resident }, sampling);
        Self::finish(b, GenerationBuffers { model: resident, adapters, decoding })
    }
}
