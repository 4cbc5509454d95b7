//! The plan of a distillation step.

use precast_kernels::abi::{
    adamw_params, cast_params, fill_params, grad_norm_finish_params, grad_norm_partial_params, micro_scalars,
    step_metrics, update_scalars,
};
use precast_kernels::adamw::AdamwUpdate;
use precast_kernels::cast::Cast;
use precast_kernels::fill::Fill;
use precast_kernels::grad_norm::{self, GradNormFinish, GradNormPartial};
use precast_kernels::{Arch, Dtype};

use crate::backward::{Gradients, Turns};
use crate::bounds::{self, Part};
use crate::config::ModelConfig;
use crate::forward::Model;
use crate::head::{self, HeadBuffers};
use crate::memory::Category;
use crate::parameters::Parameters;
use crate::plan::{Builder, Plan, Tensor};
use crate::recipe::{PlanError, Precision, Recipe, check_tokens};

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

/// A plan for distillation, and the buffers its host side writes and reads.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPlan {
    /// The plan, with the phases [`CLEAR`], [`CAST`], [`WIDEN`], [`MICRO`] and [`UPDATE`].
    pub plan: Plan,
    /// Layout of the teacher's weights.
    pub teacher_parameters: Parameters,
    /// Layout of the student's weights, gradients and moments.
    pub student_parameters: Parameters,
    /// The teacher's weights in the precision of the run.
    pub teacher: Tensor,
    /// The student's weights in the precision of the run: in fp32 the master weights themselves.
    pub weights: Tensor,
    /// The student's fp32 master weights.
    pub master: Tensor,
    /// First moments.
    pub m: Tensor,
    /// Second moments.
    pub v: Tensor,
    /// Gradients.
    pub grad: Tensor,
    /// What the host sends before each micro-batch.
    pub inputs: MicroInputs,
    /// `update_scalars`, sent before each update.
    pub update: Tensor,
    /// `step_metrics`, read after each update.
    pub metrics: Tensor,
    /// Rotary tables: (cos, sin) of the teacher and of the student.
    pub rope: [(Tensor, Tensor); 2],
}

/// One buffer of words that the host sends before each micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroInputs {
    /// The whole buffer: what is sent in one copy.
    pub all: Tensor,
    /// Token ids.
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

impl TrainingPlan {
    /// Lowers a teacher, a student and a recipe.
    ///
    /// # Errors
    /// [`PlanError`] for a sequence longer than either model takes, a teacher with a narrower vocabulary, or
    /// no tokens.
    pub fn new(
        teacher_config: &ModelConfig,
        student_config: &ModelConfig,
        recipe: &Recipe,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        check_tokens(teacher_config, "teacher", recipe.batch, recipe.seq_len)?;
        check_tokens(student_config, "student", recipe.batch, recipe.seq_len)?;
        if teacher_config.vocab < student_config.vocab {
            return Err(PlanError::TeacherNarrower { teacher: teacher_config.vocab, student: student_config.vocab });
        }
        let dtype = recipe.precision.dtype();
        let shape = (recipe.batch, recipe.seq_len);
        // Weights, and where they are narrow master weights; gradients and two moments.
        let trained_bytes = dtype.bytes() + if dtype == Dtype::F32 { 12 } else { 16 };
        let parts = [
            Part { config: teacher_config, parameter_bytes: dtype.bytes(), kept_layers: 1 },
            Part { config: student_config, parameter_bytes: trained_bytes, kept_layers: student_config.layers },
        ];
        bounds::check(&parts, recipe.tokens(), dtype.bytes())?;
        let teacher_parameters = Parameters::new(teacher_config);
        let student_parameters = Parameters::new(student_config);
        let elems = student_parameters.elems;

        let b = &mut Builder::new(arch);
        let teacher_weights =
            b.persistent("teacher.weights", Category::TeacherWeights, dtype, teacher_parameters.elems);
        // In fp32 the weights are the master weights.
        let (master_category, working_copy) = match recipe.precision {
            Precision::Fp32 => (Category::StudentWeights, false),
            Precision::Bf16 => (Category::MasterWeights, true),
        };
        let master = b.persistent("student.master", master_category, Dtype::F32, elems);
        let weights =
            if working_copy { b.persistent("student.weights", Category::StudentWeights, dtype, elems) } else { master };
        let grad = b.persistent("student.grad", Category::Gradients, Dtype::F32, elems);
        let m = b.persistent("student.m", Category::Moments, Dtype::F32, elems);
        let v = b.persistent("student.v", Category::Moments, Dtype::F32, elems);
        let turns = b.persistent("student.turns", Category::Gradients, Dtype::U32, Turns::WORDS);
        let inputs = MicroInputs::new(b, recipe.tokens());
        let update = b.persistent("update", Category::Inputs, Dtype::U32, size_of::<update_scalars>() as u64 / 4);
        let metrics = b.persistent("metrics", Category::Inputs, Dtype::F32, size_of::<step_metrics>() as u64 / 4);
        let teacher = Model::new(b, "teacher", (teacher_config, &teacher_parameters), teacher_weights, shape);
        let student = Model::new(b, "student", (student_config, &student_parameters), weights, shape);
        let student = Model { trained: true, ..student };
        let rope = [(teacher.cos, teacher.sin), (student.cos, student.sin)];

        b.phase(CLEAR);
        let cleared =
            [("clear.master", master), ("clear.grad", grad), ("clear.m", m), ("clear.v", v), ("clear.turns", turns)];
        for (label, state) in cleared {
            let params = fill_params { micro: 0, y: state.address(), n: state.elems, value: 0.0, reserved: 0 };
            b.launch(label, Fill { first: false }, &params);
        }
        b.phase(CAST);
        if working_copy {
            let params = cast_params { x: master.address(), y: weights.address(), n: elems };
            b.launch("student.weights", Cast { from: Dtype::F32, to: dtype }, &params);
        }
        b.phase(WIDEN);
        if working_copy {
            let params = cast_params { x: weights.address(), y: master.address(), n: elems };
            b.launch("student.master", Cast { from: dtype, to: Dtype::F32 }, &params);
        }

        b.phase(MICRO);
        let teacher_activations = teacher.forward(b, inputs.ids);
        let mut student_activations = student.forward(b, inputs.ids);
        if recipe.recompute {
            student_activations.forget_cheap();
        }
        let gradients = Gradients { flat: grad, micro: inputs.micro, turns: Turns::new(turns) };
        let io = HeadBuffers { targets: inputs.targets, metrics };
        let dhidden = head::distill(
            b,
            (&student, student_activations.norm.y),
            (&teacher, teacher_activations.norm.y),
            &gradients,
            &io,
            recipe,
        );
        let sorted = (inputs.sorted_ids, inputs.sorted_positions);
        student.backward(b, &gradients, &student_activations, dhidden, sorted);

        b.phase(UPDATE);
        optimizer(
            b,
            &student_parameters,
            recipe,
            [grad, master, m, v, update, metrics],
            working_copy.then_some(weights),
        );
        let plan = std::mem::replace(b, Builder::new(arch)).finish();
        bounds::refuse(plan.arena_bytes.into())?;
        Ok(Self {
            plan,
            teacher_parameters,
            student_parameters,
            teacher: teacher_weights,
            weights,
            master,
            m,
            v,
            grad,
            inputs,
            update,
            metrics,
            rope,
        })
    }
}

/// Global norm, clip and AdamW over the flat buffers.
fn optimizer(
    b: &mut Builder,
    parameters: &Parameters,
    recipe: &Recipe,
    [grad, master, m, v, update, metrics]: [Tensor; 6],
    weights: Option<Tensor>,
) {
    let n = parameters.elems;
    let groups = n.div_ceil(u64::from(grad_norm::GROUP));
    let partial = b.transient("grad_norm.partial", Dtype::F32, groups);
    let params = grad_norm_partial_params {
        grad: grad.address(),
        partial: partial.address(),
        n,
        group: grad_norm::GROUP,
        reserved: 0,
    };
    b.launch("grad_norm.partial", GradNormPartial {}, &params);
    let params = grad_norm_finish_params {
        partial: partial.address(),
        metrics: metrics.address(),
        count: groups as u32,
        clip: recipe.clip,
    };
    b.launch("grad_norm.finish", GradNormFinish {}, &params);
    let params = adamw_params {
        grad: grad.address(),
        update: update.address(),
        metrics: metrics.address(),
        master: master.address(),
        m: m.address(),
        v: v.address(),
        weights: weights.map_or(0, Tensor::address),
        n,
        decayed: parameters.decayed,
        beta1: Recipe::BETA1,
        beta2: Recipe::BETA2,
        eps: Recipe::EPS,
        weight_decay: recipe.weight_decay,
    };
    b.launch("adamw", AdamwUpdate { w: weights.map_or(Dtype::F32, |weights| weights.dtype) }, &params);
}
