//! The plan that computes the last hidden states of a model, or its most likely tokens.

use precast_core::plan::{Builder, Tensor};
use precast_kernels::{Arch, Dtype, KERNELS};

use crate::cached::HeadWeights;
use crate::category;
use crate::config::ModelConfig;
use crate::evaluation::check;
use crate::formats::Formats;
use crate::lowered::Lowered;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::predictions::TopTokens;
use crate::recipe::{PlanError, Precision};
use crate::sequences::{Sequences, Shape};
use crate::weights::{Passes, Weights};

/// Returns the shape of a model of whose head nothing is launched: where it has weights of its own, they stay away.
pub(crate) fn without_head(config: &ModelConfig) -> ModelConfig {
    ModelConfig { tied: true, ..config.clone() }
}

/// Lowers what the host reads of hidden states: themselves, or the most likely tokens.
pub(crate) fn results(ops: &mut Ops<'_>, hidden: Tensor, top: Option<(&HeadWeights, TopTokens)>) -> Vec<Tensor> {
    if let Some((head, top)) = top {
        ops.scope("head");
        return head.top(ops, hidden, top);
    }
    ops.read_back(hidden);
    vec![hidden]
}

/// A plan for the last hidden states of a model, normalized: the launches of a teacher in a step, without its head; or,
/// for its most likely tokens, with that. It has the phase [`HiddenPlan::HIDDEN`].
pub type HiddenPlan = Lowered<HiddenBuffers>;

/// Buffers of a [`HiddenPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenBuffers {
    /// The model, in the precision of the run.
    pub model: Resident,
    /// Token ids, a place each, sent before each run of the phase.
    pub ids: Tensor,
    /// The sequences that lie in these places, sent with them.
    pub sequences: Sequences,
    /// The head, if most likely tokens are asked for: a matrix of its own, also where the model has it as its
    /// embedding.
    pub head: Option<HeadWeights>,
    /// Results, each a row a token: last hidden states, `[tokens, hidden]` in the dtype of activations; or ids of the
    /// most likely tokens, `[tokens, keep]` u32, and log-probabilities of them and of all others as one, `[tokens, keep
    /// + 1]` f32.
    pub results: Vec<Tensor>,
}

impl Lowered<HiddenBuffers> {
    /// Name of its phase.
    pub const HIDDEN: &str = "hidden";

    /// Lowers a model with matrices in the formats given, for sequences end to end in `batch` times `seq_len` places.
    ///
    /// # Errors
    /// [`PlanError`] if the sequence is longer than the model supports, there are no tokens, no kernel reads a format,
    /// or tokens are asked for that cannot be.
    pub fn new(
        (config, formats): (&ModelConfig, &Formats),
        (batch, seq_len): (u32, u32),
        (precision, top): (Precision, Option<TopTokens>),
        arch: Arch,
    ) -> Result<Self, PlanError> {
        top.map_or(Ok(()), |top| top.check(config))?;
        let whole = config;
        let config = &without_head(config);
        check((config, formats), (batch, seq_len), precision)?;
        let dtype = precision.dtype();
        let mut b = Builder::new(&KERNELS, arch);
        let category = category::TEACHER_WEIGHTS;
        let weights = Weights::frozen(&mut b, "model", category, config, (formats, dtype), Passes::Forward);
        let ids = b.persistent("ids", category::INPUTS, Dtype::U32, u64::from(batch * seq_len));
        let sequences = Sequences::declare(&mut b, Shape::packed(batch, seq_len));
        let model = Resident::new(&mut b, "model", config, weights, (batch * seq_len, seq_len));
        let head = top.map(|_| HeadWeights::declare(&mut b, "head", whole, dtype));
        let ops = &mut Ops::new(&mut b, batch * seq_len, dtype, None).of(sequences);
        ops.phase(Self::HIDDEN);
        let last = Model { name: "model", config, resident: &model }.forward(ops, ids);
        let results = results(ops, last.hidden, head.as_ref().zip(top));
        Self::finish(b, HiddenBuffers { model, ids, sequences, head, results })
    }
}
