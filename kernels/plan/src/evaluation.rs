//! The plan that scores text under one model.

use precast_kernels::{Arch, Dtype, KERNELS};

use crate::adapters::{AdapterParameters, Adapters};
use crate::bounds::{self, ModelPart};
use crate::category;
use crate::config::ModelConfig;
use crate::formats::Formats;
use crate::gemm::{Gemm, Workspaces};
use crate::head;
use crate::lowered::Lowered;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::recipe::{PlanError, Precision, check_tokens};
use crate::sequences::{Sequences, Shape};
use crate::training::Student;
use crate::weights::{AdapterWeights, Passes, Weights};
use precast_core::plan::{Builder, Tensor};

/// The only phase of an evaluation.
pub const SCORE: &str = "score";

/// A plan for scoring, and the buffers that its host side writes and reads.
/// It has the phase [`SCORE`].
pub type EvaluationPlan = Lowered<EvaluationBuffers>;

/// Buffers of an [`EvaluationPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationBuffers {
    /// The model, in the precision of the run.
    pub model: Resident,
    /// Its adapters, if any.
    pub adapters: Option<AdapterWeights>,
    pub ids: Tensor,
    pub sequences: Sequences,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
    /// Negative log likelihood of each target, nats; 0 where masked.
    pub nll: Tensor,
}

/// Refuses a model and a shape without a plan.
pub(crate) fn check(
    (config, formats): (&ModelConfig, &Formats),
    (batch, seq_len): (u32, u32),
    precision: Precision,
) -> Result<(), PlanError> {
    check_tokens(config, "model", batch, seq_len)?;
    let dtype = precision.dtype();
    formats.check(config, dtype)?;
    bounds::check(
        &[ModelPart { config, parameter_bytes: dtype.bytes(), kept_layers: 1 }],
        batch * seq_len,
        dtype.bytes(),
    )
}

/// Declares the weights of a model that does not train, and of its adapters, if it has any.
pub(crate) fn frozen(
    b: &mut Builder,
    Student { config, formats, adapters }: Student<'_>,
    dtype: Dtype,
) -> Result<(Weights, Option<AdapterWeights>), PlanError> {
    if config.experts.is_some() && !adapters.is_empty() {
        return Err(PlanError::Experts);
    }
    let adapters = if adapters.is_empty() { None } else { Some(AdapterParameters::new(config, adapters)?) };
    let adapter_elems = adapters.as_ref().map_or(0, |adapters| adapters.elems);
    bounds::refuse(u128::from(adapter_elems) * u128::from(dtype.bytes()))?;
    let weights = Weights::frozen(b, "model", category::STUDENT_WEIGHTS, config, (formats, dtype), Passes::Forward);
    let adapters = adapters.map(|parameters| AdapterWeights::frozen(b, "model.adapters", parameters, dtype));
    Ok(match adapters {
        Some(adapters) => (weights.adapted(&adapters), Some(adapters)),
        None => (weights, None),
    })
}

impl Lowered<EvaluationBuffers> {
    /// Lowers a model and a shape.
    ///
    /// # Errors
    /// [`PlanError`] if the sequence is longer than the model supports, or there are no tokens.
    pub fn new(config: &ModelConfig, shape: (u32, u32), precision: Precision, arch: Arch) -> Result<Self, PlanError> {
        Self::with_formats((config, &Formats::dense()), shape, precision, arch)
    }

    /// Like [`Self::new`], with matrices in the formats given.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn with_formats(
        (config, formats): (&ModelConfig, &Formats),
        shape: (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        Self::with(Student { config, formats, adapters: &Adapters::none() }, shape, precision, arch)
    }

    /// Like [`Self::new`], for a model with formats and adapters.
    ///
    /// # Errors
    /// Those of [`Self::new`], and [`PlanError`] if adapters do not fit the model.
    pub fn with(model: Student<'_>, shape: (u32, u32), precision: Precision, arch: Arch) -> Result<Self, PlanError> {
        Self::with_gemm(model, shape, (precision, Gemm::Bundle), arch)
    }

    /// Like [`Self::with`], with a choice of who computes GEMMs.
    ///
    /// # Errors
    /// Those of [`Self::with`].
    pub fn with_gemm(
        model: Student<'_>,
        (batch, seq_len): (u32, u32),
        (precision, gemm): (Precision, Gemm),
        arch: Arch,
    ) -> Result<Self, PlanError> {
        let Student { config, formats, .. } = model;
        check((config, formats), (batch, seq_len), precision)?;
        let (tokens, dtype) = (u64::from(batch * seq_len), precision.dtype());
        let mut b = Builder::new(&KERNELS, arch);
        let (weights, adapters) = frozen(&mut b, model, dtype)?;
        let ids = b.persistent("ids", category::INPUTS, Dtype::U32, tokens);
        let targets = b.persistent("targets", category::INPUTS, Dtype::U32, tokens);
        let sequences = Sequences::declare(&mut b, Shape::packed(batch, seq_len));
        let nll = b.persistent("nll", category::INPUTS, Dtype::F32, tokens);
        let mut resident = Resident::new(&mut b, "model", config, weights, (batch * seq_len, seq_len));
        let workspaces = (gemm == Gemm::Cublas).then(|| Workspaces::new(&mut b));
        let ops = &mut Ops::new(&mut b, batch * seq_len, dtype, workspaces).of(sequences);
        if formats.is_int8() {
            resident.staged = Model { name: "model", config, resident: &resident }.quantize(ops, None).0;
        }
        ops.phase(SCORE);
        let last = Model { name: "model", config, resident: &resident }.forward(ops, ids);
        ops.scope("head");
        head::score(ops, last, targets, nll);
        Self::finish(b, EvaluationBuffers { model: resident, adapters, ids, sequences, targets, nll })
    }
}
