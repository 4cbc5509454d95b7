//! Plans that measure the distance of a model from a reference: from another form of itself, whose plan computes its
//! hidden states, or from a teacher, whose hidden states were computed before.

use precast_kernels::{Arch, Dtype, KERNELS};

use crate::bounds;
use crate::cached::HeadWeights;
use crate::category;
use crate::comparison::TokenComparison;
use crate::config::ModelConfig;
use crate::evaluation::{self, SCORE};
use crate::head::{self, Head};
use crate::lowered::Lowered;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use crate::parameters::Parameter;
use crate::recipe::{PlanError, Precision};
use crate::sequences::{Sequences, Shape};
use crate::training::Student;
use crate::weights::AdapterWeights;
use precast_core::plan::{Builder, Tensor};

/// Side of a plan's model in a comparison, and the plan's results.
#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// The reference: its last hidden states, normalized, `[tokens, hidden]`.
    Reference { hidden: Tensor },
    /// The model that is measured: reads the reference's hidden states, and gives both sides' results per token. `head`
    /// belongs to a teacher; two forms of a model share the model's own.
    Other { reference: Tensor, head: Option<Box<HeadWeights>>, compared: TokenComparison<Tensor> },
}

/// A plan of one side, with the phase [`SCORE`], and the buffers that its host side writes and reads.
pub type ComparisonPlan = Lowered<ComparisonBuffers>;

/// Buffers of a [`ComparisonPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonBuffers {
    pub model: Resident,
    /// Its adapters, if any.
    pub adapters: Option<AdapterWeights>,
    pub ids: Tensor,
    pub sequences: Sequences,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
    pub side: Side,
}

/// Reference that a plan's model is measured against.
#[derive(Clone, Copy)]
enum Against<'a> {
    /// None: it is the reference.
    Nothing,
    Form,
    Teacher(&'a ModelConfig),
}

impl Lowered<ComparisonBuffers> {
    /// Lowers a model in a form, and a shape, as the reference.
    ///
    /// # Errors
    /// Those of [`EvaluationPlan::with`](crate::EvaluationPlan::with).
    pub fn reference(
        model: Student<'_>,
        shape: (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        Self::lower(model, Against::Nothing, shape, precision, arch)
    }

    /// Lowers a model in the other form.
    ///
    /// # Errors
    /// Those of [`Self::reference`].
    pub fn other(model: Student<'_>, shape: (u32, u32), precision: Precision, arch: Arch) -> Result<Self, PlanError> {
        Self::lower(model, Against::Form, shape, precision, arch)
    }

    /// Lowers a student beside the head of its teacher, of which no more is on the device.
    ///
    /// # Errors
    /// Those of [`EvaluationPlan::with`](crate::EvaluationPlan::with), and [`PlanError::TeacherNarrower`].
    pub fn student(
        student: Student<'_>,
        teacher: &ModelConfig,
        shape: (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        if teacher.vocab < student.config.vocab {
            return Err(PlanError::TeacherNarrower { teacher: teacher.vocab, student: student.config.vocab });
        }
        bounds::refuse(u128::from(Parameter::head(teacher).elems()) * u128::from(precision.dtype().bytes()))?;
        Self::lower(student, Against::Teacher(teacher), shape, precision, arch)
    }

    fn lower(
        model: Student<'_>,
        against: Against<'_>,
        (batch, seq_len): (u32, u32),
        precision: Precision,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        let Student { config, formats, .. } = model;
        evaluation::check((config, formats), (batch, seq_len), precision)?;
        let (tokens, dtype) = (u64::from(batch * seq_len), precision.dtype());
        let mut b = Builder::new(&KERNELS, arch);
        let (weights, adapters) = evaluation::frozen(&mut b, model, dtype)?;
        let ids = b.persistent("ids", category::INPUTS, Dtype::U32, tokens);
        let targets = b.persistent("targets", category::INPUTS, Dtype::U32, tokens);
        let sequences = Sequences::declare(&mut b, Shape::packed(batch, seq_len));
        let mut resident = Resident::new(&mut b, "model", config, weights, (batch * seq_len, seq_len));
        let (head, hidden) = match against {
            Against::Nothing => (None, None),
            Against::Form => (None, Some(config.hidden)),
            Against::Teacher(teacher) => {
                let head = HeadWeights::declare(&mut b, "teacher.weights", teacher, dtype);
                (Some(Box::new(head)), Some(teacher.hidden))
            }
        };
        let ops = &mut Ops::new(&mut b, batch * seq_len, dtype, None).of(sequences);
        if formats.is_int8() {
            resident.staged = Model { name: "model", config, resident: &resident }.quantize(ops, None).0;
        }
        ops.phase(SCORE);
        ops.scope("model");
        let reference = hidden.map(|hidden| ops.sent("reference", tokens * u64::from(hidden)));
        let last = Model { name: "model", config, resident: &resident }.forward(ops, ids);
        ops.scope("head");
        let side = match reference {
            None => {
                ops.read_back(last.hidden);
                Side::Reference { hidden: last.hidden }
            }
            Some(reference) => {
                let linear = head.as_ref().map_or(last.linear, |head| &head.linear);
                let of_reference = Head { linear, hidden: reference, ..last };
                let compared = head::compare(ops, [of_reference, last], config.vocab, targets);
                Side::Other { reference, head, compared }
            }
        };
        Self::finish(b, ComparisonBuffers { model: resident, adapters, ids, sequences, targets, side })
    }
}
