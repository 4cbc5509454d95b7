//! The plan of a training step.

use precast_kernels::abi::{micro_scalars, step_metrics, update_scalars};
use precast_kernels::{Arch, Dtype, gemm};

use crate::adapters::{AdapterParameters, Adapters};
use crate::bounds::{self, Part};
use crate::buffer::{Category, Tensor};
use crate::builder::Builder;
use crate::comparison::Comparison;
use crate::config::ModelConfig;
use crate::formats::{Formats, check_student};
use crate::gemm::{Gemm, Workspaces};
use crate::guard::{GUARD, Guard, Guarded};
use crate::head;
use crate::model::{Model, Resident};
use crate::node::Node;
use crate::ops::{Gradients, Ops, Semaphores, Sorted, State, StepTensors, Sums};
use crate::plan::{Phase, Plan};
use crate::recipe::{PlanError, Precision, Recipe, Recompute, check_tokens};
use crate::share::{Shards, Share};
pub use crate::staged::WIDEN;
use crate::staged::{CERTIFY, QUANTISE};
use crate::weights::{AdapterWeights, Trained, Weight, Weights};

/// Once, before the weights come: zeros in everything the optimizer keeps, padding included.
pub const CLEAR: &str = "clear";
/// After master weights have come: the student's weights in the precision of the run.
pub const CAST: &str = "cast";
/// Forward and backward of one micro-batch.
pub const MICRO: &str = "micro";
/// The same of a rank's last micro-batch of a step, where there are several ranks: gradients leave as they are complete.
pub const LAST: &str = "last";
/// Norm, clip and AdamW.
pub const UPDATE: &str = "update";
/// The losses of the teacher by itself on one micro-batch, where there is a teacher.
pub const TEACHER: &str = "teacher";
/// What each of several ranks has updated, to all of them: beside the next step's teacher.
pub const GATHER: &str = "gather";

/// The losses of `step_metrics`, which come first in it.
const LOSSES: u64 = 2;

/// Words of a scalar block, padded to a cache line.
const BLOCK_WORDS: u64 = 16;

/// A model that trains: all of it, or adapters of it.
#[derive(Clone, Copy, Debug)]
pub struct Student<'a> {
    pub config: &'a ModelConfig,
    /// How its matrices are stored: all dense, if all of it trains.
    pub formats: &'a Formats,
    /// If there are any, they alone train, and the model is their frozen base.
    pub adapters: &'a Adapters,
}

/// A model to learn from.
#[derive(Clone, Copy, Debug)]
pub enum Teacher<'a> {
    /// One of its own.
    Model {
        config: &'a ModelConfig,
        /// How its matrices stay stored.
        formats: &'a Formats,
    },
    /// The student's base, without its adapters: one copy of the weights serves both.
    Base,
}

/// A plan for training, and the buffers its host side writes and reads.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingPlan {
    /// The plan, with the phases of [`Staged`](crate::Staged), [`CERTIFY`], [`CLEAR`], [`CAST`], [`WIDEN`], [`MICRO`] and
    /// [`UPDATE`], one for each way in which gradients of replicas are added ([`crate::Fold::phase`]), [`LAST`] and [`GATHER`]
    /// where there are several ranks, and [`TEACHER`].
    pub plan: Plan,
    /// The model to learn from, in the precision of the run or as it is stored; none where nobody teaches, or the student's
    /// base does.
    pub teacher: Option<Resident>,
    /// The model that trains, or the frozen base of adapters.
    pub student: Resident,
    /// The adapters that train, if any do.
    pub adapters: Option<AdapterWeights>,
    /// What [`CERTIFY`] gives of the tokens of the inputs, where a teacher has 8-bit products and measuring takes no more memory
    /// than what comes later.
    pub certificate: Option<Comparison<Tensor>>,
    /// What the host sends before each micro-batch.
    pub inputs: MicroInputs,
    /// `update_scalars`, sent before each update.
    pub update: Tensor,
    /// `step_metrics`, read after each update.
    pub metrics: Tensor,
    /// What of the weights this rank updates.
    pub shards: Shards,
    /// What [`GUARD`] gives, where a student trains in int8.
    pub guard: Option<Guard>,
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
    /// What the gradient of a weight is multiplied by, and what is in its place: 1, and 0 in the first micro-batch of a step
    /// or 1 in later ones, f32.
    pub factors: Tensor,
}

impl MicroInputs {
    fn new(b: &mut Builder, tokens: u32) -> Self {
        let column = u64::from(tokens).next_multiple_of(BLOCK_WORDS);
        let all = b.persistent("inputs", Category::Inputs, Dtype::U32, 4 * column + BLOCK_WORDS);
        let part = |index: u64| all.slice(index * column, u64::from(tokens));
        let micro = all.slice(4 * column, size_of::<micro_scalars>() as u64 / 4);
        let factors = all.slice(4 * column + BLOCK_WORDS / 2, 2);
        Self { all, ids: part(0), targets: part(1), sorted_ids: part(2), sorted_positions: part(3), micro, factors }
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
        let teacher = teacher.map(|(config, formats)| Teacher::Model { config, formats });
        let (formats, adapters) = (&Formats::dense(), &Adapters::none());
        Self::with(teacher, Student { config: student, formats, adapters }, recipe, arch)
    }

    /// The same of a student that may be adapters on a frozen base, in formats of its own, which may be the teacher too.
    ///
    /// # Errors
    /// As [`Self::new`]; and for adapters that do not fit the model, what a student without adapters cannot do, and 8-bit
    /// products that nothing computes.
    pub fn with(
        teacher: Option<Teacher<'_>>,
        student: Student<'_>,
        recipe: &Recipe,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        Self::with_share(teacher, student, recipe, Share::ALONE, arch)
    }

    /// The same for a rank's share of each step.
    ///
    /// # Errors
    /// As [`Self::with`], and [`PlanError::Replicas`].
    pub fn with_share(
        teacher: Option<Teacher<'_>>,
        student: Student<'_>,
        recipe: &Recipe,
        share: Share,
        arch: Arch,
    ) -> Result<Self, PlanError> {
        share.check()?;
        let certified = Self::lower(teacher, student, recipe, share, arch, true)?;
        if certified.certificate.is_none() || !certified.grows_at_startup() {
            return Ok(certified);
        }
        let plain = Self::lower(teacher, student, recipe, share, arch, false)?;
        Ok(if certified.plan.arena_bytes > plain.plan.arena_bytes { plain } else { certified })
    }

    /// Whether the start-up takes more memory than what comes after it.
    fn grows_at_startup(&self) -> bool {
        let is_startup = |phase: &Phase| [QUANTISE, CERTIFY].iter().any(|name| phase.name.starts_with(name));
        let later = self.plan.phases.iter().filter(|phase| !is_startup(phase)).flat_map(|phase| &phase.nodes);
        let touched = later.flat_map(Node::touches).map(|touch| self.plan.buffer(touch.buffer));
        let persistent = self.plan.buffers.iter().filter(|buffer| buffer.persistent);
        let end = touched.chain(persistent).map(|buffer| buffer.offset + buffer.reserved_bytes()).max();
        end.is_none_or(|end| end < self.plan.arena_bytes)
    }

    /// With `certified`, the start-up measures how far a teacher of 8-bit products is from the dense one.
    fn lower(
        teacher: Option<Teacher<'_>>,
        student: Student<'_>,
        recipe: &Recipe,
        share: Share,
        arch: Arch,
        certified: bool,
    ) -> Result<Self, PlanError> {
        let Student { config: student, formats, adapters } = student;
        let teacher = if recipe.objective.has_teacher() { Some(teacher.ok_or(PlanError::NoTeacher)?) } else { None };
        let base_teaches = matches!(teacher, Some(Teacher::Base));
        if adapters.is_empty() && base_teaches {
            return Err(PlanError::BaseWithoutAdapters);
        }
        if adapters.is_empty() && !formats.is_dense() {
            return Err(PlanError::StoredWithoutAdapters);
        }
        let teacher = match teacher {
            Some(Teacher::Model { config, formats }) => Some((config, formats)),
            Some(Teacher::Base) | None => None,
        };
        for (role, config) in [("teacher", teacher.map(|(config, _)| config)), ("student", Some(student))] {
            config.map_or(Ok(()), |config| check_tokens(config, role, recipe.batch, recipe.seq_len))?;
        }
        if let Some((teacher, _)) = teacher.filter(|(teacher, _)| teacher.vocab < student.vocab) {
            return Err(PlanError::TeacherNarrower { teacher: teacher.vocab, student: student.vocab });
        }
        let dtype = recipe.precision.dtype();
        teacher.map_or(Ok(()), |(config, formats)| formats.check(config, dtype))?;
        let is_int8 = recipe.precision == Precision::Int8;
        if is_int8 {
            if !formats.is_dense() {
                return Err(PlanError::StoredInt8);
            }
            check_student(student)?;
        }
        // Weights, and where they are narrow master weights; gradients and two moments.
        let trained_bytes = dtype.bytes() + if dtype == Dtype::F32 { 12 } else { 16 };
        let parameter_bytes = if adapters.is_empty() { trained_bytes } else { dtype.bytes() };
        let kept_layers = if recipe.recompute == Recompute::Blocks { 1 } else { student.layers };
        let of_teacher = teacher.map(|(config, _)| Part { config, parameter_bytes: dtype.bytes(), kept_layers: 1 });
        let of_student = Part { config: student, parameter_bytes, kept_layers };
        let parts: Vec<Part<'_>> = of_teacher.into_iter().chain([of_student]).collect();
        bounds::check(&parts, recipe.tokens(), dtype.bytes())?;
        let adapters = if adapters.is_empty() { None } else { Some(AdapterParameters::new(student, adapters)?) };
        let adapter_elems = adapters.as_ref().map_or(0, |adapters| adapters.elems);
        bounds::refuse(u128::from(adapter_elems) * u128::from(trained_bytes))?;
        let mut b = Builder::new(arch);

        let mut teacher_resident = teacher.map(|(config, formats)| {
            let weights = Weights::frozen(&mut b, "teacher", Category::TeacherWeights, config, (formats, dtype), false);
            Resident::new(&mut b, "teacher", config, weights, recipe.seq_len)
        });
        // What start-up phases quantise is declared before them.
        let mut base = (is_int8 && adapters.is_some()).then(|| {
            let int8 = (&Formats::int8(), dtype);
            let weights = Weights::frozen(&mut b, "student", Category::StudentWeights, student, int8, true);
            Resident::new(&mut b, "student", student, weights, recipe.seq_len)
        });
        let inputs = MicroInputs::new(&mut b, recipe.tokens());
        let mut certificate = None;
        if let (Some((config, formats)), Some(resident)) = (teacher, &mut teacher_resident)
            && formats.is_int8()
        {
            let ops = &mut Ops::new(&mut b, (recipe.batch, recipe.seq_len), dtype, None);
            let model = Model { name: "teacher", config, resident };
            let (staged, reference) = model.quantise(ops, certified.then_some(inputs.ids));
            certificate = reference.map(|reference| {
                ops.startup_phase(CERTIFY);
                let last = Model { name: "teacher.certified", ..model }.forward(ops, inputs.ids);
                ops.scope("certificate");
                head::compare(ops, last, reference, student.vocab, inputs.targets)
            });
            resident.staged = staged;
        }
        if let Some(base) = &mut base {
            let ops = &mut Ops::new(&mut b, (recipe.batch, recipe.seq_len), dtype, None);
            let model = Model { name: "student", config: student, resident: base };
            let ids = inputs.ids;
            let (staged, reference) = model.quantise(ops, (certified && base_teaches).then_some(ids));
            if let Some(reference) = reference {
                ops.startup_phase(CERTIFY);
                let last = Model { name: "teacher.certified", ..model }.forward(ops, ids);
                ops.scope("certificate");
                certificate = Some(head::compare(ops, last, reference, student.vocab, inputs.targets));
            }
            base.staged = staged;
        }
        let weights = match (&base, &adapters) {
            (Some(_), _) => None,
            (None, Some(_)) => {
                let dense = (formats, dtype);
                Some(Weights::frozen(&mut b, "student", Category::StudentWeights, student, dense, false))
            }
            (None, None) => Some(Weights::trained(&mut b, "student", student, recipe.precision, share)),
        };
        let adapters =
            adapters.map(|parameters| AdapterWeights::trained(&mut b, "student.adapters", parameters, dtype, share));
        let tables = |weights| Resident::new(&mut b, "student", student, weights, recipe.seq_len);
        let base = weights.map(tables).or(base).expect("a student has weights");
        let mut student_resident = match &adapters {
            Some(adapters) => Resident { weights: base.weights.clone().adapted(adapters), ..base.clone() },
            None => base.clone(),
        };
        let workspaces = (recipe.gemm == Gemm::Cublas).then(|| Workspaces::new(&mut b));
        let splits_k = workspaces.is_none() && gemm::splits_k(dtype, arch);
        let semaphores =
            splits_k.then(|| b.persistent("student.semaphores", Category::Gradients, Dtype::U32, Semaphores::WORDS));
        let update = b.persistent("update", Category::Inputs, Dtype::U32, size_of::<update_scalars>() as u64 / 4);
        let metrics = b.persistent("metrics", Category::Inputs, Dtype::F32, size_of::<step_metrics>() as u64 / 4);
        let (all, decayed, sections) = match &adapters {
            Some(adapters) => (adapters.all, adapters.parameters.elems, adapters.parameters.sections()),
            None => (base.weights.all, base.weights.parameters.decayed, base.weights.parameters.sections()),
        };
        let Trained { grad, .. } = all.trained().expect("the student trains");
        let shards = Shards::new(share, &sections);
        let sums = Sums::new(&mut b, [grad, metrics.slice(0, LOSSES)], share);
        let quantised = (is_int8 && adapters.is_none()).then_some(&base.weights);
        let state = State::new(all, quantised, &shards, adapters.is_some());

        let ops = Ops::new(&mut b, (recipe.batch, recipe.seq_len), dtype, workspaces);
        let MicroInputs { micro, factors, .. } = inputs;
        let ops = &mut ops.training(Gradients { micro, factors, semaphores: semaphores.map(Semaphores::new) });
        ops.phase(CLEAR);
        ops.scope("clear");
        for (name, tensor) in state.cleared().chain(semaphores.map(|semaphores| ("semaphores", semaphores))) {
            ops.clear(name, tensor);
        }
        ops.scope("student");
        ops.phase(CAST);
        ops.narrow(&state);
        ops.phase(WIDEN);
        ops.widen(&state);
        if quantised.is_some() && share.ranks == 1 {
            student_resident.staged = Model { name: "student", config: student, resident: &base }.widen(ops);
        }

        let teach = |ops: &mut Ops<'_>| {
            let own = teacher.map(|(config, _)| config).zip(teacher_resident.as_ref());
            let teaching = own.or(base_teaches.then_some((student, &base)));
            teaching.map(|(config, resident)| Model { name: "teacher", config, resident }.forward(ops, inputs.ids))
        };
        let micro_batch = |ops: &mut Ops<'_>| {
            let teacher_last = teach(ops);
            if share.ranks > 1 && teacher_last.is_some() {
                // The weights of other ranks may still be on their way while the teacher runs.
                ops.cut();
            }
            let model = Model { name: "student", config: student, resident: &student_resident };
            let (last, saved) = model.forward_saving(ops, inputs.ids, recipe.recompute);
            ops.scope("head");
            let dhidden = head::losses(ops, recipe.objective, last, teacher_last, (inputs.targets, Some(metrics)));
            let sorted = Sorted { ids: inputs.sorted_ids, positions: inputs.sorted_positions };
            model.backward(ops, saved, dhidden, sorted);
        };
        ops.phase(MICRO);
        micro_batch(ops);
        for fold in share.folds() {
            ops.phase(&fold.phase());
            ops.scope("replicas");
            ops.fold(fold, &sums);
        }
        if share.ranks > 1 {
            ops.phase(LAST);
            ops.restart();
            micro_batch(ops);
            ops.scope("ranks");
            ops.sum_over_ranks(&sums, &shards);
        }
        ops.phase(UPDATE);
        ops.scope("student");
        ops.adamw(&state, decayed, StepTensors { update, metrics }, recipe);
        if share.ranks > 1 {
            ops.phase(GATHER);
            ops.scope("ranks");
            ops.spread(&state);
        }
        let guard = quantised.map(|_| {
            ops.phase(GUARD);
            ops.restart();
            let teacher = teach(ops);
            let model = Model { name: "guard", config: student, resident: &base };
            let copy = (share.ranks > 1).then_some(all.tensor);
            let MicroInputs { ids, targets, .. } = inputs;
            Guarded { model, copy, objective: recipe.objective, teacher, ids, targets }.lower(ops)
        });
        if recipe.objective.has_teacher() {
            ops.phase(TEACHER);
            let teacher = teach(ops).expect("a run that learns from a teacher has one");
            ops.scope("teacher.head");
            head::teacher_losses(ops, recipe.objective, teacher, student.vocab, (inputs.targets, metrics));
        }
        let plan = b.finish();
        bounds::refuse(plan.arena_bytes.into())?;
        let (teacher, student) = (teacher_resident, student_resident);
        Ok(Self { plan, teacher, student, adapters, certificate, inputs, update, metrics, shards, guard })
    }

    /// Whether this rank has all master weights: launches read them, or they are the adapter that is written at the end.
    pub fn has_whole_masters(&self) -> bool {
        let all = self.trained();
        let master = all.trained().expect("something trains").master;
        self.shards.share().ranks == 1 || self.adapters.is_some() || all.tensor == master
    }

    /// What the optimizer updates: the adapters, or all weights of the student.
    pub fn trained(&self) -> Weight {
        self.adapters.as_ref().map_or(self.student.weights.all, |adapters| adapters.all)
    }
}
