//! The plan of a training step.

use precast_kernels::abi::{micro_scalars, step_metrics, update_scalars};
use precast_kernels::{Arch, Dtype, gemm};

use crate::bounds::{self, Part};
use crate::buffer::{Category, Tensor};
use crate::builder::Builder;
use crate::config::ModelConfig;
use crate::formats::Formats;
use crate::head;
use crate::model::{Model, Resident};
use crate::ops::{Gradients, Ops, Semaphores, Sorted, StepTensors};
use crate::plan::Plan;
use crate::recipe::{PlanError, Recipe, Recompute, check_tokens};
use crate::weights::{Trained, Weights};

/// Once, before the weights come: zeros in everything the optimizer keeps, padding included.
pub const CLEAR: &str = "clear";
/// After master weights have come: the student's weights in the precision of the run.
pub const CAST: &str = "cast";
/// Instead, where those have come as a file holds them: the master weights from them.
pub const WIDEN: &str = "widen";
/// Forward and backward of one micro-batch.
pub const MICRO: &str = "micro";
/// Norm, clip and AdamW.
pub const UPDATE: &str = "update";

/// Words of a scalar block, padded to a cache line.
const BLOCK_WORDS: u64 = 16;

/// A plan for training, and the buffers its host side writes and reads.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPlan {
    /// The plan, with the phases [`CLEAR`], [`CAST`], [`WIDEN`], [`MICRO`] and [`UPDATE`].
    pub plan: Plan,
    /// The model to learn from, in the precision of the run or as it is stored; none where nobody teaches.
    pub teacher: Option<Resident>,
    /// The model that trains.
    pub student: Resident,
    /// What the host sends before each micro-batch.
    pub inputs: MicroInputs,
    /// `update_scalars`, sent before each update.
    pub update: Tensor,
    /// `step_metrics`, read after each update.
    pub metrics: Tensor,
}

/// One buffer of words that the host sends before each micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroInputs {
    /// The whole buffer: what is sent in one copy.
    pub all: Tensor,
    pub ids: Tensor,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
    /// Token ids, ascending.
    pub sorted_ids: Tensor,
    /// Where each sorted id came from.
    pub sorted_positions: Tensor,
    /// `micro_scalars`.
    pub micro: Tensor,
}

impl MicroInputs {
    fn new(b: &mut Builder, tokens: u32) -> Self {
        let column = u64::from(tokens).next_multiple_of(BLOCK_WORDS);
        let all = b.persistent("inputs", Category::Inputs, Dtype::U32, 4 * column + BLOCK_WORDS);
        let part = |index: u64| all.slice(index * column, u64::from(tokens));
        let micro = all.slice(4 * column, size_of::<micro_scalars>() as u64 / 4);
        Self { all, ids: part(0), targets: part(1), sorted_ids: part(2), sorted_positions: part(3), micro }
    }
}

impl AsRef<Plan> for TrainingPlan {
    fn as_ref(&self) -> &Plan {
        &self.plan
    }
}

impl TrainingPlan {
    /// Lowers a student, a recipe and the teacher that its objective asks for.
    ///
    /// # Errors
    /// [`PlanError`] for a sequence longer than either model takes, a teacher that is not there or has a narrower
    /// vocabulary, or no tokens.
    pub fn new(
        teacher: Option<&ModelConfig>,
        student: &ModelConfig,
        recipe: &Recipe,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        let dense = Formats::dense();
        Self::with_formats(teacher.map(|config| (config, &dense)), student, recipe, arch)
    }

    /// The same with a teacher whose matrices stay in the formats given.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_formats(
        teacher: Option<(&ModelConfig, &Formats)>,
        student: &ModelConfig,
        recipe: &Recipe,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        let formats = teacher.map_or_else(Formats::dense, |(_, formats)| formats.clone());
        let teacher = teacher.map(|(config, _)| config);
        let teacher = if recipe.objective.has_teacher() { Some(teacher.ok_or(PlanError::NoTeacher)?) } else { None };
        for (role, config) in [("teacher", teacher), ("student", Some(student))] {
            config.map_or(Ok(()), |config| check_tokens(config, role, recipe.batch, recipe.seq_len))?;
        }
        if let Some(teacher) = teacher.filter(|teacher| teacher.vocab < student.vocab) {
            return Err(PlanError::TeacherNarrower { teacher: teacher.vocab, student: student.vocab });
        }
        let dtype = recipe.precision.dtype();
        // Weights, and where they are narrow master weights; gradients and two moments.
        let trained_bytes = dtype.bytes() + if dtype == Dtype::F32 { 12 } else { 16 };
        let kept_layers = if recipe.recompute == Recompute::Blocks { 1 } else { student.layers };
        let of_teacher = teacher.map(|config| Part { config, parameter_bytes: dtype.bytes(), kept_layers: 1 });
        let of_student = Part { config: student, parameter_bytes: trained_bytes, kept_layers };
        let parts: Vec<Part<'_>> = of_teacher.into_iter().chain([of_student]).collect();
        bounds::check(&parts, recipe.tokens(), dtype.bytes())?;
        let mut b = Builder::new(arch);

        let teacher_resident = teacher.map(|config| {
            let weights = Weights::frozen(&mut b, "teacher", Category::TeacherWeights, config, (&formats, dtype));
            Resident::new(&mut b, "teacher", config, weights, recipe.seq_len)
        });
        let weights = Weights::trained(&mut b, "student", student, dtype);
        let student_resident = Resident::new(&mut b, "student", student, weights, recipe.seq_len);
        let semaphores = gemm::splits_k(dtype, arch)
            .then(|| b.persistent("student.semaphores", Category::Gradients, Dtype::U32, Semaphores::WORDS));
        let inputs = MicroInputs::new(&mut b, recipe.tokens());
        let update = b.persistent("update", Category::Inputs, Dtype::U32, size_of::<update_scalars>() as u64 / 4);
        let metrics = b.persistent("metrics", Category::Inputs, Dtype::F32, size_of::<step_metrics>() as u64 / 4);
        let all = student_resident.weights.all;
        let Trained { master, grad, m, v } = all.trained().expect("the student trains");

        let ops = Ops::new(&mut b, (recipe.batch, recipe.seq_len), dtype);
        let ops = &mut ops.training(Gradients { micro: inputs.micro, semaphores: semaphores.map(Semaphores::new) });
        ops.phase(CLEAR);
        ops.scope("clear");
        let state = [("master", master), ("grad", grad), ("m", m), ("v", v)].into_iter();
        for (name, state) in state.chain(semaphores.map(|semaphores| ("semaphores", semaphores))) {
            ops.clear(name, state);
        }
        // In fp32 the weights are the master weights.
        let copied = all.tensor != master;
        ops.scope("student");
        ops.phase(CAST);
        if copied {
            ops.cast("weights", master, all.tensor);
        }
        ops.phase(WIDEN);
        if copied {
            ops.cast("master", all.tensor, master);
        }

        ops.phase(MICRO);
        let teacher_last = teacher
            .zip(teacher_resident.as_ref())
            .map(|(config, resident)| Model { name: "teacher", config, resident }.forward(ops, inputs.ids));
        let model = Model { name: "student", config: student, resident: &student_resident };
        let (last, saved) = model.forward_saving(ops, inputs.ids, recipe.recompute);
        ops.scope("head");
        let dhidden = head::losses(ops, recipe.objective, last, teacher_last, (inputs.targets, metrics));
        let sorted = Sorted { ids: inputs.sorted_ids, positions: inputs.sorted_positions };
        model.backward(ops, saved, dhidden, sorted);

        ops.phase(UPDATE);
        ops.adamw(&all, student_resident.weights.parameters.decayed, StepTensors { update, metrics }, recipe);
        let plan = b.finish();
        bounds::refuse(plan.arena_bytes.into())?;
        Ok(Self { plan, teacher: teacher_resident, student: student_resident, inputs, update, metrics })
    }
}
