//! The plan that computes the last hidden states of a model.

use precast_core::Plan;
use precast_core::plan::{Builder, Tensor};
use precast_kernels::{Arch, Dtype, KERNELS};

use crate::category;
use crate::config::ModelConfig;
use crate::evaluation::{check, check_bytes};
use crate::formats::Formats;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::recipe::{PlanError, Precision};
use crate::weights::{Passes, Weights};

/// Returns the shape of a model of whose head nothing is launched: where it has weights of its own, they stay away.
pub(crate) fn without_head(config: &ModelConfig) -> ModelConfig {
    ModelConfig { tied: true, ..config.clone() }
}

/// A plan for the last hidden states of a model, normalized: the launches of a teacher in a step, without its head.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenPlan {
    /// The plan, with the phase [`Self::HIDDEN`].
    pub plan: Plan,
    /// The model, in the precision of the run.
    pub model: Resident,
    /// Token ids, `[batch, seq_len]`, sent before each run of the phase.
    pub ids: Tensor,
    /// Results, `[tokens, hidden]`, in the dtype of activations.
    pub hidden: Tensor,
}

impl AsRef<Plan> for HiddenPlan {
    fn as_ref(&self) -> &Plan {
        &self.plan
    }
}

impl AsMut<Plan> for HiddenPlan {
    fn as_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }
}

impl HiddenPlan {
    /// Name of its phase.
    pub const HIDDEN: &str = "hidden";

    /// Lowers a model with matrices in the formats given.
    ///
    /// # Errors
    /// [`PlanError`] if the sequence is longer than the model supports, there are no tokens, or no kernel reads a format.
    pub fn new(
        (config, formats): (&ModelConfig, &Formats),
        (batch, seq_len): (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        let config = &without_head(config);
        check((config, formats), (batch, seq_len), precision)?;
        let dtype = precision.dtype();
        let mut b = Builder::new(&KERNELS, arch);
        let category = category::TEACHER_WEIGHTS;
        let weights = Weights::frozen(&mut b, "model", category, config, (formats, dtype), Passes::Forward);
        let ids = b.persistent("ids", category::INPUTS, Dtype::U32, u64::from(batch * seq_len));
        let model = Resident::new(&mut b, "model", config, weights, seq_len);
        let ops = &mut Ops::new(&mut b, (batch, seq_len), dtype, None);
        ops.phase(Self::HIDDEN);
        let last = Model { name: "model", config, resident: &model }.forward(ops, ids);
        ops.read_back(last.hidden);
        let hidden = last.hidden;
        let plan = b.finish();
        check_bytes(&plan)?;
        Ok(Self { plan, model, ids, hidden })
    }
}
