//! Plans that measure the distance between two forms of a model: one computes the reference's hidden states, the other
//! compares.

use precast_kernels::{Arch, Dtype, KERNELS};

use crate::category;
use crate::comparison::TokenComparison;
use crate::config::ModelConfig;
use crate::evaluation::{self, SCORE};
use crate::formats::Formats;
use crate::head;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::recipe::{PlanError, Precision};
use crate::weights::{Passes, Weights};
use precast_core::Plan;
use precast_core::plan::{Builder, Tensor};

/// Form of a plan's model, and the plan's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The reference: its last hidden states, normalized, `[tokens, hidden]`.
    Reference { hidden: Tensor },
    /// The other form: reads the reference's hidden states, and gives both forms' results per token.
    Other { reference: Tensor, compared: TokenComparison<Tensor> },
}

/// A plan of one side, with the phase [`SCORE`], and the buffers that its host side writes and reads.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonPlan {
    pub plan: Plan,
    pub model: Resident,
    pub ids: Tensor,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
    pub side: Side,
}

impl AsRef<Plan> for ComparisonPlan {
    fn as_ref(&self) -> &Plan {
        &self.plan
    }
}

impl ComparisonPlan {
    /// Lowers a model in a form, and a shape, as the reference.
    ///
    /// # Errors
    /// Those of [`EvaluationPlan::new`](crate::EvaluationPlan::new).
    pub fn reference(
        model: (&ModelConfig, &Formats),
        shape: (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        Self::lower(model, shape, precision, true, arch)
    }

    /// Lowers a model in the other form.
    ///
    /// # Errors
    /// Those of [`Self::reference`].
    pub fn other(
        model: (&ModelConfig, &Formats),
        shape: (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        Self::lower(model, shape, precision, false, arch)
    }

    fn lower(
        (config, formats): (&ModelConfig, &Formats),
        (batch, seq_len): (u32, u32),
        precision: Precision,
        is_reference: bool,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        evaluation::check((config, formats), (batch, seq_len), precision)?;
        let (tokens, dtype) = (u64::from(batch * seq_len), precision.dtype());
        let mut b = Builder::new(&KERNELS, arch);
        let weights =
            Weights::frozen(&mut b, "model", category::STUDENT_WEIGHTS, config, (formats, dtype), Passes::Forward);
        let ids = b.persistent("ids", category::INPUTS, Dtype::U32, tokens);
        let targets = b.persistent("targets", category::INPUTS, Dtype::U32, tokens);
        let mut model = Resident::new(&mut b, "model", config, weights, seq_len);
        let ops = &mut Ops::new(&mut b, (batch, seq_len), dtype, None);
        if formats.is_int8() {
            model.staged = Model { name: "model", config, resident: &model }.quantize(ops, None).0;
        }
        ops.phase(SCORE);
        ops.scope("model");
        let reference = (!is_reference).then(|| ops.sent("reference", tokens * u64::from(config.hidden)));
        let last = Model { name: "model", config, resident: &model }.forward(ops, ids);
        ops.scope("head");
        let side = match reference {
            None => {
                ops.read_back(last.hidden);
                Side::Reference { hidden: last.hidden }
            }
            Some(reference) => {
                Side::Other { reference, compared: head::compare(ops, last, reference, config.vocab, targets) }
            }
        };
        let plan = b.finish();
        evaluation::check_bytes(&plan)?;
        Ok(Self { plan, model, ids, targets, side })
    }
}
