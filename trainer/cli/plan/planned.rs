//! What a run would take, as `plan` shows it.

use std::collections::BTreeMap;

use precast_kernels::{Arch, Key, KeyVariant};
use precast_plan::estimate::{Peak, flops, seconds};
use precast_plan::training::{MICRO, UPDATE};
use precast_plan::{Formats, Gemm, Launch, Recipe, Recompute, TrainingPlan, keys};
use precast_runtime::{DriverError, LoadError};
use serde::Serialize;

use super::Target;
use super::forms::Forms;
use super::room::{self, Refusal, Takes, TooLarge};
use crate::base::note::note;
use crate::device::bundle::embedded;
use crate::device::host_memory::HostMemory;
use crate::device::shapes::Shapes;
use crate::options::WeightFormat;
use crate::options::{RunConfig, ShapeOptions};
use crate::programs::failure::Failure;

/// The plan of a run, and what follows from it.
pub(super) struct Planned<'a> {
    pub config: &'a RunConfig,
    pub target: &'a Target,
    pub plan: TrainingPlan,
    /// Of the teacher.
    pub forms: Forms,
    /// Where the run does not fit into the memory that the target has.
    pub refusal: Option<Refusal>,
    /// Whether a teacher is in memory for itself.
    pub has_own_teacher: bool,
    /// Whether the teacher's weights are the student's.
    pub shared: bool,
    pub choices: Vec<Choice>,
    /// Of a student that stays as it is.
    pub student_format: Option<WeightFormat>,
    /// Parameters of its adapter.
    pub trained: Option<u64>,
    pub host: HostMemory,
    pub kernels: Kernels,
    pub step: Step,
}

/// What a run would take with one choice of what is recomputed.
#[derive(Serialize)]
pub(super) struct Choice {
    pub recompute: String,
    pub bytes: u64,
    /// In a micro-batch.
    pub launches: usize,
}

/// What a plan launches.
pub(super) struct Kernels {
    /// How often each kernel is launched.
    pub launches: BTreeMap<KeyVariant, usize>,
    /// Of each kernel that the run's bundle holds.
    pub digests: BTreeMap<KeyVariant, String>,
    /// How often cuBLASLt computes each product.
    pub products: BTreeMap<Key, usize>,
    /// What is not needed for that.
    pub replaced: Vec<KeyVariant>,
}

/// The work of a step.
pub(super) struct Step {
    pub tokens: u64,
    pub flops: u64,
    /// By peak figures: whose, and seconds at least.
    pub estimate: Option<(Peak, f64)>,
}

impl<'a> Planned<'a> {
    /// Lowers a run for a target in each form that its weights can have.
    pub fn of(config: &'a RunConfig, target: &'a Target) -> Result<Self, Failure> {
        let arch = target.arch;
        if config.arithmetic.gemm == Gemm::Cublas && arch == Arch::Sim {
            return Err(DriverError::NoCublas.into());
        }
        let shapes = Shapes::read(config)?;
        shapes.check(config)?;
        let recipe = config.recipe();
        let shared = shapes.shares_weights(config);
        let own_teacher = shapes.teacher.as_ref().filter(|_| !shared);
        let stored = own_teacher.map_or_else(Formats::dense, |(_, formats)| formats.clone());
        let asked = config.teacher_format.unwrap_or_default();
        let takes = |formats: &Formats| Takes::of(config, &shapes, formats, target);
        let has_own_teacher = own_teacher.is_some();
        let forms = Forms::of(asked, &stored, has_own_teacher, target, takes)?;
        let (form, takes) = (forms.planned, forms.takes());
        let too_large = TooLarge { config, shapes: &shapes, target, stored: &stored, has_own_teacher, form, takes };
        let refusal = (!takes.fits(target)).then(|| Refusal::of(&too_large));
        let formats = room::formats(form, &stored);
        let lower = |recompute| shapes.lower(config, &Recipe { recompute, ..recipe }, &formats, arch);
        let plan = lower(recipe.recompute)?;
        let choices = Recompute::ALL.into_iter().map(|recompute| Ok(Choice::of(recompute, &lower(recompute)?)));
        let choices = choices.collect::<Result<Vec<Choice>, Failure>>()?;
        Ok(Self {
            config,
            target,
            forms,
            has_own_teacher,
            refusal,
            shared,
            choices,
            student_format: config.adapter.as_ref().map(|_| shapes.student_format(config).0),
            trained: trained(&plan),
            host: HostMemory::of(&plan, &config.data, target.has_one_memory()),
            kernels: Kernels::of(config, &shapes, &formats, arch, &plan)?,
            step: Step::of(config, &plan, arch),
            plan,
        })
    }
}

/// Parameters of the adapter that a run trains.
fn trained(plan: &TrainingPlan) -> Option<u64> {
    let adapters = plan.adapters.as_ref()?;
    Some(adapters.parameters.list.iter().map(|parameter| parameter.shape.iter().product::<u64>()).sum())
}

impl Choice {
    fn of(recompute: Recompute, plan: &TrainingPlan) -> Self {
        let launches = plan.plan.phase(MICRO).nodes.len();
        Self { recompute: recompute.to_string(), bytes: plan.plan.device_bytes(), launches }
    }
}

impl Kernels {
    fn of(
        config: &RunConfig,
        shapes: &Shapes,
        formats: &Formats,
        arch: Arch,
        plan: &TrainingPlan,
    ) -> Result<Self, Failure> {
        let digests = digests(config, arch, plan)?;
        let mut launches: BTreeMap<KeyVariant, usize> = BTreeMap::new();
        for pair in plan.plan.launches().filter_map(Launch::pair) {
            *launches.entry(pair).or_default() += 1;
        }
        let mut products: BTreeMap<Key, usize> = BTreeMap::new();
        for product in plan.plan.products() {
            *products.entry(product.key.clone()).or_default() += 1;
        }
        let by_bundle = Recipe { gemm: Gemm::Bundle, ..config.recipe() };
        let replaced = match products.is_empty() {
            true => Vec::new(),
            false => keys(&shapes.lower(config, &by_bundle, formats, arch)?.plan)
                .difference(&keys(&plan.plan))
                .cloned()
                .collect(),
        };
        Ok(Self { launches, digests, products, replaced })
    }
}

impl Step {
    fn of(config: &RunConfig, TrainingPlan { plan, .. }: &TrainingPlan, arch: Arch) -> Self {
        let ShapeOptions { batch_size, seq_len } = config.shape;
        let grad_accum = config.division.grad_accum;
        let estimate = Peak::of(arch).map(|peak| {
            let accum = f64::from(grad_accum);
            (peak, accum * seconds(plan, MICRO, &peak) + seconds(plan, UPDATE, &peak))
        });
        Self {
            tokens: u64::from(batch_size) * u64::from(seq_len) * u64::from(grad_accum),
            flops: u64::from(grad_accum) * flops(plan, MICRO) + flops(plan, UPDATE),
            estimate,
        }
    }
}

/// The digest of each kernel that the run's bundle holds.
fn digests(config: &RunConfig, arch: Arch, plan: &TrainingPlan) -> Result<BTreeMap<KeyVariant, String>, Failure> {
    let kernels = &config.target.kernels;
    if kernels.bundle.is_none() && (arch == Arch::Sim || embedded()?.is_none()) {
        return Ok(BTreeMap::new());
    }
    let source = kernels.find(arch, &plan.plan)?;
    let bundle = source.open()?;
    bundle.verify().map_err(|error| source.refuse(error))?;
    if arch != Arch::Sim && !bundle.archs().contains(&arch) {
        let remedy = LoadError::remedy(arch, &config.model_names());
        note(format_args!("there are no kernels for {arch} here. {remedy}"));
    }
    let modules = bundle.modules(arch).map_err(|error| source.refuse(error.into()))?;
    let of_code = modules.into_iter().filter_map(|m| Some((m.pair, m.entry.code.as_ref()?.digest.to_string())));
    Ok(of_code.collect())
}
