//! The plan, and its buffers.

use precast_kernels::abi::{step_metrics, update_scalars};
use precast_kernels::{Dtype, KERNELS, gemm};

use super::inputs::{MicroInputs, TeacherPass};
use super::refusals::Run;
use super::request::{Teacher, TrainingRequest};
use super::resident::{Frozen, Residents, TeacherBuffers};
use super::startup;
use super::step::Step;
use crate::category;
use crate::comparison::TokenComparison;
use crate::decoding::Decoding;
use crate::gemm::{Gemm, Workspaces};
use crate::guard::Guard;
use crate::head::Scores;
use crate::lowered::Lowered;
use crate::model::Resident;
use crate::ops::{Gradients, OptimizerState, Semaphores, StepTensors, Sums};
use crate::recipe::PlanError;
use crate::share::Shards;
use crate::staged::{CERTIFY, QUANTIZE};
use crate::weights::{AdapterWeights, Weight};
use precast_core::plan::{Builder, Node, Phase, Tensor};

/// Losses in `step_metrics`, which come first.
const LOSSES: u64 = 2;

/// A plan for training, and the buffers that its host side writes and reads.
///
/// It has the phases of [`Staged`](crate::Staged), [`CERTIFY`], `CLEAR`, `CAST`, `WIDEN`, `MICRO` and `UPDATE`, one for
/// each fold of replicas' gradients ([`crate::Fold::phase`]), the teacher's pass if it has one, `LAST`, `GATHER` and
/// `MASTERS` with several ranks, `TEACHER`, and those of [`Decoding`]. Phases that a teacher takes part in are there
/// once for each ([`super::phases::of_teacher`]).
pub type TrainingPlan = Lowered<TrainingBuffers>;

/// Buffers of a [`TrainingPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingBuffers {
    /// The teachers, by their numbers.
    pub teachers: Vec<TeacherBuffers>,
    /// The model that trains, or the frozen base of adapters.
    pub student: Resident,
    /// The adapters that train, if any.
    pub adapters: Option<AdapterWeights>,
    /// Results of [`CERTIFY`] on the input tokens of each teacher, if it is in int8 and measuring takes no more memory
    /// than later phases.
    pub certificates: Vec<Option<TokenComparison<Tensor>>>,
    /// The inputs that the host sends before each micro-batch.
    pub inputs: MicroInputs,
    /// The pass of a teacher that computes several micro-batches at a time, in [`super::phases::pass_phase`].
    pub pass: Option<TeacherPass>,
    /// `update_scalars`, sent before each update.
    pub update: Tensor,
    /// `step_metrics`, read after each update.
    pub metrics: Tensor,
    /// The pieces of the weights that this rank updates.
    pub shards: Shards,
    /// The sums of [`GUARD`](crate::guard::GUARD) on micro-batches of each teacher, if the student trains in int8.
    pub guards: Vec<Guard>,
    /// The stage that decodes under the student, if it was requested.
    pub decoding: Option<Decoding>,
    /// Scores of a micro-batch's targets, of a run that trains on what it decodes.
    pub scores: Option<Scores>,
}

impl Lowered<TrainingBuffers> {
    /// Lowers a run.
    ///
    /// # Errors
    /// [`PlanError`] if a sequence is longer than either model supports, the teacher is missing or has a narrower
    /// vocabulary, there are no tokens, adapters do not fit the model, a frozen student has no adapters, no kernel
    /// computes an int8 GEMM, the student cannot decode what is requested, or replicas cannot be divided among the
    /// ranks.
    pub fn new(request: TrainingRequest<'_>) -> Result<Self, PlanError> {
        let run = Run::new(request)?;
        let certified = Self::lower(&run, true)?;
        if certified.certificates.iter().all(Option::is_none) || !certified.grows_at_startup() {
            return Ok(certified);
        }
        let plain = Self::lower(&run, false)?;
        Ok(if certified.plan.arena_bytes > plain.plan.arena_bytes { plain } else { certified })
    }

    /// True if the start-up takes more memory than later phases.
    fn grows_at_startup(&self) -> bool {
        let is_startup = |phase: &Phase| [QUANTIZE, CERTIFY].iter().any(|name| phase.name.starts_with(name));
        let later = self.plan.phases.iter().filter(|phase| !is_startup(phase)).flat_map(|phase| &phase.nodes);
        let touched = later.flat_map(Node::touches).map(|touch| self.plan.buffer(touch.buffer));
        let persistent = self.plan.buffers.iter().filter(|buffer| buffer.is_persistent());
        let end = touched.chain(persistent).map(|buffer| buffer.offset + buffer.reserved_bytes()).max();
        end.is_none_or(|end| end < self.plan.arena_bytes)
    }

    /// Lowers a run. With `certified`, the start-up measures the distance of an int8 teacher from the dense one.
    fn lower(run: &Run<'_>, certified: bool) -> Result<Self, PlanError> {
        let mut b = Builder::new(&KERNELS, run.arch);
        let mut frozen = Frozen::declare(&mut b, run);
        let inputs = MicroInputs::new(&mut b, run.recipe.shape(), (run.recipe.own_prompts, run.pass.is_some()));
        let pass = run.pass.zip(run.teachers.first()).and_then(|(micros, teacher)| {
            let Teacher::Model { config, .. } = teacher else { return None };
            Some(TeacherPass::declare(&mut b, run.recipe.shape(), micros, (config.hidden, run.dtype())))
        });
        let certificates = startup::quantize(&mut b, run, &mut frozen, &inputs, certified);
        let mut models = Residents::declare(&mut b, run, frozen);
        let workspaces = (run.recipe.gemm == Gemm::Cublas).then(|| Workspaces::new(&mut b));
        let splits_k = workspaces.is_none() && gemm::splits_k(run.dtype(), run.arch);
        let semaphores =
            splits_k.then(|| b.persistent("student.semaphores", category::GRADIENTS, Dtype::U32, Semaphores::WORDS));
        let update = b.persistent("update", category::INPUTS, Dtype::U32, size_of::<update_scalars>() as u64 / 4);
        let metrics = b.persistent("metrics", category::INPUTS, Dtype::F32, size_of::<step_metrics>() as u64 / 4);

        let scores = run.on_policy.then(|| Scores::declare(&mut b, run.recipe.tokens().into()));
        let (trained, decayed, sections) = models.trained();
        let grad = trained.trained().expect("the student trains").grad;
        let shards = Shards::new(run.share, &sections);
        let quantized = (run.is_int8() && models.adapters.is_none()).then_some(&models.base.weights);
        let rounded = if models.adapters.is_none() { &models.base.weights.rounded[..] } else { &[] };
        let step = Step {
            run,
            models: &models,
            inputs,
            pass,
            tensors: StepTensors { update, metrics },
            shards: &shards,
            sums: Sums::new(&mut b, [grad, metrics.slice(0, LOSSES)], run.share),
            state: OptimizerState::new(trained, (quantized, rounded), &shards, models.has_whole_masters()),
            scores,
            decayed,
            quantized,
            semaphores,
        };
        let MicroInputs { micro, factors, .. } = inputs;
        let gradients = Gradients { micro, factors, semaphores: semaphores.map(Semaphores::new) };
        let ops = &mut run.ops(&mut b, workspaces).of(inputs.sequences).training(gradients);
        let widened = step.prepare(ops);
        step.gradients(ops);
        step.update(ops);
        let guards = step.guards(ops);
        step.teachers_alone(ops);
        let decoding = step.decode(&mut b);
        models.student.staged.extend(widened);
        let Residents { teachers, student, adapters, .. } = models;
        let teachers = teachers.into_iter().map(|(_, teacher)| teacher).collect();
        Self::finish(
            b,
            TrainingBuffers {
                teachers,
                student,
                adapters,
                certificates,
                inputs,
                pass,
                update,
                metrics,
                shards,
                guards,
                decoding,
                scores,
            },
        )
    }

    /// True if this rank has all master weights: launches read them, or they are the adapter that is written at the
    /// end.
    pub fn has_whole_masters(&self) -> bool {
        let all = self.trained();
        let master = all.trained().expect("something trains").master;
        let is_alone = self.shards.share().ranks == 1;
        is_alone || self.adapters.is_some() || all.tensor == master || self.student.weights.reads_masters()
    }

    /// True if ranks hold pieces of master weights that no working copy has: `MASTERS` collects them.
    pub fn collects_masters(&self) -> bool {
        !self.has_whole_masters() && self.student.weights.is_rounded()
    }

    /// Returns the weights that the optimizer updates: the adapters, or all of the student.
    pub fn trained(&self) -> Weight {
        self.adapters.as_ref().map_or(self.student.weights.all, |adapters| adapters.all)
    }
}
