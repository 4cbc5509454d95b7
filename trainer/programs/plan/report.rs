//! The report of a plan, for people and for programs.

use precast_kernels::Arch;
use precast_plan::chips::Peak;
use precast_plan::estimate::{step_flops, step_seconds};
use precast_plan::staged::{CERTIFY, QUANTIZE, WIDEN};
use precast_plan::training::{GATHER, LAST, MICRO, UPDATE};
use precast_plan::{Gemm, MemoryTable, Plan, Precision, Recipe, Recompute, Share, TrainingPlan, Work};
use precast_runtime::{DriverError, Rows};
use serde::Serialize;
use serde_json::{Value, json};

use super::Target;
use super::answer::Answer;
use super::cuda_cores::OnCudaCores;
use super::data::PlannedData;
use super::experts::ExpertTiles;
use super::forms::Forms;
use super::kernels::{Kernels, Missing, Products};
use super::rollouts::Rollouts;
use super::teachers::TeacherBytes;
use crate::base::record_text::display;
use crate::device::fit::fit;
use crate::device::host_memory::HostMemory;
use crate::device::shapes::Shapes;
use crate::device::training::Training;
use crate::device::tuning::{self, Tuning};
use crate::inputs::data::Packing;
use crate::inputs::teacher_cache::CacheManifest;
use crate::options::{Division, RunConfig, ShapeOptions, WeightFormat};
use crate::programs::bench::groups::{self, Group};
use crate::run::failure::Failure;

/// Memory, kernels and work that a run takes.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(serialize_with = "display")]
    pub(super) arch: Arch,
    #[serde(skip)]
    pub(super) shape: ShapeOptions,
    #[serde(skip)]
    pub(super) precision: Precision,
    pub(super) memory: MemoryTable,
    pub(super) host_memory: HostMemory,
    /// The memory that the run is compared with, if it is with any.
    pub(super) room: Option<Answer>,
    /// None of a teacher without a name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) teachers: Vec<TeacherBytes>,
    /// None of a teacher that is not in memory for itself.
    pub(super) teacher_format: Option<Forms>,
    /// None of a student that trains.
    pub(super) student_format: Option<WeightFormat>,
    /// Flags that ask for blocks of a file that has none.
    #[serde(skip)]
    pub(super) stored_dense: Vec<&'static str>,
    /// Formats in which matrices train, if not as the weights are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ship: Option<String>,
    /// True if the teacher's weights are the student's.
    pub(super) teacher_is_base: bool,
    /// Parameters of the adapter that trains.
    pub(super) trained_parameters: Option<u64>,
    pub(super) recompute: Recomputes,
    /// None of a run that writes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rollouts: Option<Rollouts>,
    #[serde(skip)]
    pub(super) phases: Vec<PhaseCount>,
    #[serde(skip)]
    pub(super) replicas: Option<Replicas>,
    pub(super) kernels: Kernels,
    /// None where all of them are there.
    pub(super) missing_kernels: Option<Missing>,
    /// Those of a step, as `bench` lists them.
    pub(super) launches: Vec<StepLaunches>,
    /// None without a teacher with experts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) experts: Vec<ExpertTiles>,
    /// Micro-batches that the teacher computes at a time, if several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) teacher_pass: Option<u32>,
    /// None where tensor cores compute all GEMMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) on_cuda_cores: Option<OnCudaCores>,
    /// A note on int8 where bf16 is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) int8: Option<String>,
    /// None where cuBLASLt computes nothing.
    pub(super) cublas: Option<Products>,
    pub(super) step: Step,
    /// None where no data are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<PlannedData>,
}

/// Launches of a phase of a step that have one kernel and one shape.
#[derive(Debug, Serialize)]
pub(super) struct StepLaunches {
    phase: String,
    /// Key and variant, or cublas.
    kernel: String,
    problem: Option<String>,
    /// CTAs of a launch along x, y and z; none by cuBLASLt.
    grid: Option<[u32; 3]>,
    launches: usize,
}

impl StepLaunches {
    fn of(group: &Group) -> Self {
        let (kernel, problem, grid) = (group.code(), group.problem(), group.grid());
        Self { phase: group.phase.clone(), kernel, problem, grid, launches: group.launches.len() }
    }
}

/// Choices of what is recomputed, and what a run takes with each.
#[derive(Debug, Serialize)]
pub(super) struct Recomputes {
    pub chosen: Recompute,
    pub choices: Vec<Choice>,
}

#[derive(Debug, Serialize)]
pub(super) struct Choice {
    pub recompute: Recompute,
    pub bytes: u64,
    /// In a micro-batch.
    pub launches: usize,
}

/// A phase of a plan, or those that are one for each layer.
#[derive(Debug)]
pub(super) struct PhaseCount {
    pub name: String,
    pub phases: usize,
    /// In all of them.
    pub launches: usize,
    pub exchanges: usize,
}

/// A GPU's part of a step that is divided into replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    pub share: Share,
    /// Weights that it updates, and all of them.
    pub own_elems: u64,
    pub elems: u64,
    /// In a step.
    pub sent_bytes: u64,
}

/// The work of a step.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub tokens: u64,
    /// True if these are places, and rows lie in them end to end.
    #[serde(skip)]
    pub packed: bool,
    pub flops: u64,
    /// Bytes that it reads of a cache, whose sequences are as those of the data on the average; none of rows that have
    /// not been read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_bytes: Option<u64>,
    /// True if the step writes its sequences, which may be shorter.
    #[serde(skip)]
    pub writes: bool,
    /// None where the device's rates are not known.
    pub estimate: Option<Estimate>,
}

/// A lower bound of a step's time, by peak figures.
#[derive(Debug, Serialize)]
pub(super) struct Estimate {
    /// Whose figures they are.
    pub device: &'static str,
    pub seconds: f64,
    pub tokens_per_s: f64,
    /// Of rows that have been read, their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_tokens_per_s: Option<f64>,
}

impl Report {
    /// Lowers a run for a target in each form that its weights can have.
    ///
    /// # Errors
    /// [`Failure`] where models and run do not go together. What does not fit is in the report: [`Self::check`] refuses
    /// it.
    pub fn of(config: &RunConfig, target: &Target) -> Result<Self, Failure> {
        Shapes::read(config)?.check(config)?;
        let (config, data) = PlannedData::read(config)?;
        Self::over(&config, data, target)
    }

    /// Like [`Self::of`], of a run whose data have been read.
    ///
    /// # Errors
    /// Those of [`Self::of`].
    pub fn of_read(config: &RunConfig, target: &Target) -> Result<Self, Failure> {
        Self::over(config, None, target)
    }

    fn over(config: &RunConfig, data: Option<PlannedData>, target: &Target) -> Result<Self, Failure> {
        let Rows { launches: arch, code } = target.rows;
        if config.arithmetic.gemm == Gemm::Cublas && arch == Arch::Sim {
            return Err(DriverError::NoCublas.into());
        }
        let shapes = &Shapes::read(config)?;
        shapes.check(config)?;
        let run = Training { shapes, config, arch };
        let mut fit = fit(&run, target.memory.as_ref())?;
        let tuning = Tuning::read(&config.tuning)?;
        fit.change(|plan| match &target.device {
            Some(device) => tuning::select(&mut plan.plan, device, tuning.as_ref()),
            None => tuning::select_for_row(&mut plan.plan, tuning.as_ref()),
        })?;
        let (config, plan) = (&*run.with_slots(fit.choice.slots), &fit.plan);
        let recipe = config.recipe();
        let lower = |recipe: Recipe| run.lower_by(config, recipe, fit.choice);
        let choices = Recompute::ALL.into_iter().map(|recompute| {
            let TrainingPlan { plan, .. } = lower(Recipe { recompute, ..recipe })?;
            Ok(Choice { recompute, bytes: plan.device_bytes(), launches: plan.phase(MICRO).nodes.len() })
        });
        let choices = choices.collect::<Result<Vec<Choice>, Failure>>()?;
        let kernels = Kernels::of(&config.target.kernels, code, &plan.plan)?;
        let groups = groups::of(&plan.plan, &groups::step(&plan.plan));
        // Several teachers share the sequences.
        let cache = if let [only] = &shapes.teachers[..] { only.cache.as_ref() } else { None };
        let by_bundle = || Ok(lower(Recipe { gemm: Gemm::Bundle, ..recipe })?);
        Ok(Self {
            arch,
            shape: config.shape,
            precision: config.arithmetic.precision,
            memory: MemoryTable::of(&plan.plan),
            host_memory: fit.host.clone(),
            room: Answer::of(&run, &fit),
            teachers: TeacherBytes::of(&config.teachers, &plan.plan),
            teacher_format: run.own_teacher().map(|_| Forms::of(&run, &fit)).transpose()?,
            student_format: config.adapter.as_ref().map(|_| shapes.student_format(config)),
            stored_dense: shapes.stored_dense(config),
            ship: config.file().map(|file| file.described(&shapes.student.0)),
            teacher_is_base: shapes.computed().any(|teacher| shapes.shares_weights(teacher, config)),
            trained_parameters: trained(plan),
            recompute: Recomputes { chosen: recipe.recompute, choices },
            rollouts: Rollouts::of(&run, &fit)?,
            phases: phases(&plan.plan),
            replicas: Replicas::of(config.division.share, plan),
            missing_kernels: Missing::of(&config.target.kernels, config.model_names(), code, &kernels),
            kernels,
            launches: groups.iter().map(StepLaunches::of).collect(),
            experts: ExpertTiles::of(plan),
            teacher_pass: plan.pass.map(|pass| pass.micros),
            on_cuda_cores: OnCudaCores::of(&groups, arch),
            int8: config.int8_note(arch),
            cublas: Products::of(&plan.plan, by_bundle)?,
            step: Step::of(config, (data.as_ref(), cache), &plan.plan, target.peak()),
            data,
        })
    }

    /// By the names of its fields, and the answer, in the order of the alphabet.
    pub fn to_json(&self) -> Value {
        let mut json = serde_json::to_value(self).expect("plain data serializes");
        let fit = self.room.as_ref();
        json["fits"] = json!(fit.map(|fit| fit.fits));
        json["memory_bytes"] = json!(self.memory.total_bytes);
        json["limit_bytes"] = json!(fit.map(|fit| fit.memory.free));
        json["suggestions"] = json!(fit.map_or(&[][..], |fit| fit.changes.as_slice()));
        json
    }

    /// Refuses a run that does not fit.
    ///
    /// # Errors
    /// [`crate::device::DeviceError::Memory`], with the least change that fits.
    pub fn check(&self) -> Result<(), Failure> {
        self.room.as_ref().map_or(Ok(()), Answer::check)
    }

    /// Refuses a run whose kernels are not all there.
    ///
    /// # Errors
    /// [`Failure::Kernels`], with the command that builds them.
    pub fn check_kernels(&self) -> Result<(), Failure> {
        self.missing_kernels.as_ref().map_or(Ok(()), |missing| Err(missing.refusal()))
    }
}

/// Parameters of the adapter that a run trains.
fn trained(plan: &TrainingPlan) -> Option<u64> {
    let adapters = plan.adapters.as_ref()?;
    Some(adapters.parameters.list.iter().map(|parameter| parameter.shape.iter().product::<u64>()).sum())
}

/// Counts the phases of a plan: those of the start-up that are one for each layer together.
pub(super) fn phases(plan: &Plan) -> Vec<PhaseCount> {
    let mut all: Vec<PhaseCount> = Vec::new();
    for phase in &plan.phases {
        let prefix = phase.name.split('.').next().unwrap_or_default();
        let name = if [QUANTIZE, CERTIFY, WIDEN].contains(&prefix) { prefix } else { &phase.name };
        let launches = phase.launches().count();
        let exchanges = phase.nodes.len() - launches;
        match all.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.phases += 1;
                known.launches += launches;
                known.exchanges += exchanges;
            }
            None => all.push(PhaseCount { name: name.to_owned(), phases: 1, launches, exchanges }),
        }
    }
    all
}

impl Replicas {
    /// None of a step that is not divided.
    fn of(share: Share, plan: &TrainingPlan) -> Option<Self> {
        if share.replicas <= 1 {
            return None;
        }
        // The exchanges of the start-up come once.
        let phases = plan.plan.phases.iter();
        let phases = phases.filter(|phase| [LAST, UPDATE, GATHER].contains(&phase.name.as_str()));
        let sent_bytes = phases.flat_map(|phase| &phase.nodes).map(|node| match &node.work {
            Work::Exchange(exchange) => exchange.bytes(share.rank),
            Work::Launch(_) => 0,
        });
        let sent_bytes = sent_bytes.sum();
        Some(Self { share, own_elems: plan.shards.own_elems(), elems: plan.shards.elems(), sent_bytes })
    }
}

impl Step {
    fn of(
        config: &RunConfig,
        (data, cache): (Option<&PlannedData>, Option<&CacheManifest>),
        plan: &Plan,
        peak: Option<Peak>,
    ) -> Self {
        let ShapeOptions { batch_size, seq_len } = config.shape;
        let Division { grad_accum, share } = config.division;
        let tokens = u64::from(batch_size) * u64::from(seq_len) * u64::from(grad_accum);
        let estimate = peak.map(|peak| {
            // Ranks compute at the same time, each as many micro-batches.
            let seconds = step_seconds(plan, grad_accum / share.ranks, &peak);
            let tokens_per_s = tokens as f64 / seconds;
            let row_tokens_per_s = data.map(|data| data.fill * tokens_per_s);
            Estimate { device: peak.device, seconds, tokens_per_s, row_tokens_per_s }
        });
        let flops = step_flops(plan, grad_accum);
        let packed = config.places().packing != Packing::None;
        let rows = if packed { data.map(|data| data.rows_in(tokens)) } else { Some(config.sequences_a_step()) };
        let hidden_bytes = cache.zip(rows).map(|(cache, rows)| cache.mean_bytes(rows));
        Self { tokens, packed, flops, hidden_bytes, writes: config.on_policy.is_some(), estimate }
    }
}
