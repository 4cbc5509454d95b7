//! The plan that scores text under one model.

use precast_kernels::{Arch, Dtype};

use crate::bounds::{self, Part};
use crate::config::ModelConfig;
use crate::forward::Model;
use crate::head;
use crate::memory::Category;
use crate::parameters::Parameters;
use crate::plan::{Builder, Plan, Tensor};
use crate::recipe::{PlanError, Precision, check_tokens};

/// The one phase of an evaluation.
pub const SCORE: &str = "score";

/// A plan for scoring, and the buffers its host side writes and reads.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationPlan {
    /// The plan, with the phase [`SCORE`].
    pub plan: Plan,
    /// Layout of the weights.
    pub parameters: Parameters,
    /// The weights in the precision of the run.
    pub weights: Tensor,
    /// Token ids.
    pub ids: Tensor,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
    /// Negative log likelihood of each target, nats; 0 where masked.
    pub nll: Tensor,
    /// Rotary tables: cos and sin.
    pub rope: (Tensor, Tensor),
}

impl EvaluationPlan {
    /// Lowers a model and a shape.
    ///
    /// # Errors
    /// [`PlanError`] for a sequence longer than the model takes, or no tokens.
    pub fn new(
        config: &ModelConfig,
        (batch, seq_len): (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        check_tokens(config, "model", batch, seq_len)?;
        let dtype = precision.dtype();
        let part = Part { config, parameter_bytes: dtype.bytes(), kept_layers: 1 };
        bounds::check(&[part], batch * seq_len, dtype.bytes())?;
        let tokens = u64::from(batch * seq_len);
        let parameters = Parameters::new(config);
        let mut b = Builder::new(arch);
        let weights = b.persistent("model.weights", Category::StudentWeights, precision.dtype(), parameters.elems);
        let ids = b.persistent("ids", Category::Inputs, Dtype::U32, tokens);
        let targets = b.persistent("targets", Category::Inputs, Dtype::U32, tokens);
        let nll = b.persistent("nll", Category::Inputs, Dtype::F32, tokens);
        let model = Model::new(&mut b, "model", (config, &parameters), weights, (batch, seq_len));
        b.phase(SCORE);
        let activations = model.forward(&mut b, ids);
        head::score(&mut b, &model, activations.norm.y, targets, nll);
        let rope = (model.cos, model.sin);
        let plan = b.finish();
        bounds::refuse(plan.arena_bytes.into())?;
        Ok(Self { plan, parameters, weights, ids, targets, nll, rope })
    }
}
