//! The one list: which kernels a plan launches, and which plans a model can have.

use std::collections::BTreeSet;

use precast_kernels::gemm::TOKEN_BUCKETS;
use precast_kernels::{Arch, Block, KeyVariant};

use crate::adapters::{Adapters, Target};
use crate::comparison_plan::ComparisonPlan;
use crate::config::ModelConfig;
use crate::evaluation::EvaluationPlan;
use crate::formats::Formats;
use crate::node::Launch;
use crate::objective::Objective;
use crate::plan::Plan;
use crate::recipe::{Precision, Recipe};
use crate::share::Share;
use crate::training::{Student, Teacher, TrainingPlan};

/// Every (key, variant) of the bundle that a plan launches. The only enumeration: the build compiles it, start-up checks it,
/// the step executes that same plan.
pub fn keys(plan: &Plan) -> BTreeSet<KeyVariant> {
    plan.launches().filter_map(Launch::pair).collect()
}

/// A plan's keys as every variant that admits the launch: which one is selected may depend on the token count.
fn admitted(plan: &Plan, arch: Arch) -> impl Iterator<Item = KeyVariant> {
    plan.launches().flat_map(move |launch| {
        let admits = |pair: &KeyVariant| pair.key.kernel().admits(pair.variant, &launch.params);
        launch.key.built(arch).filter(admits)
    })
}

/// Formats in which every kernel occurs that a frozen model with any mix of them launches: all dense, as much as can be in
/// each block format, and products of 8 bits. What else a step launches does not depend on them, be it an evaluation's or a teacher's in a run.
fn formats(config: &ModelConfig) -> impl Iterator<Item = Formats> {
    let in_blocks = Block::ALL.into_iter().map(|block| Formats::uniform(config, block));
    let in_blocks = in_blocks.filter(|formats| !formats.is_dense());
    [Formats::dense(), Formats::int8()].into_iter().chain(in_blocks)
}

/// Every (key, variant) that any run over these models can launch: training by every recipe with each pair whose
/// vocabularies fit, of adapters too, and evaluation of each model in every precision, whatever the token count and however
/// frozen weights are stored.
///
/// Two blocks stand for all of a model's: blocks are alike, so more of them add launches but no keys. So do adapters of one
/// rank on every projection for any others: ranks, scales and which projections they go with are arguments.
pub fn build_keys(models: &[ModelConfig], arch: Arch) -> BTreeSet<KeyVariant> {
    let models: Vec<ModelConfig> = models
        .iter()
        .map(|config| ModelConfig { layers: config.layers.min(2), max_positions: u32::MAX, ..config.clone() })
        .collect();
    let mut all = BTreeSet::new();
    for recipe in TOKEN_BUCKETS.into_iter().flat_map(Recipe::every) {
        for student in &models {
            let teachers = models.iter().map(Some).filter(|_| recipe.objective.has_teacher());
            let nobody = (!recipe.objective.has_teacher()).then_some(None);
            for teacher in teachers.chain(nobody) {
                // A narrower teacher cannot train this student: no run, no keys.
                if let Ok(training) = TrainingPlan::new(teacher, student, &recipe, arch) {
                    all.extend(admitted(&training.plan, arch));
                }
            }
            let (formats, adapters) = (Formats::dense(), Adapters::uniform(student, &Target::ALL, 8, 1.0));
            let adapted = Student { config: student, formats: &formats, adapters: &adapters };
            // Whoever else teaches adapters launches what it would teach the whole model.
            let base = recipe.objective.has_teacher().then_some(Teacher::Base);
            if let Ok(training) = TrainingPlan::with(base, adapted, &recipe, arch) {
                all.extend(admitted(&training.plan, arch));
            }
        }
    }
    // What adds replicas and ranks up depends on neither models nor recipes.
    for (student, recipe) in models.iter().zip(Recipe::every(1)) {
        let (formats, adapters) = (Formats::dense(), Adapters::none());
        let student = Student { config: student, formats: &formats, adapters: &adapters };
        let recipe = Recipe { objective: Objective::CrossEntropy, ..recipe };
        let share = Share { replicas: 4, ranks: 2, rank: 0 };
        if let Ok(training) = TrainingPlan::with_share(None, student, &recipe, share, arch) {
            all.extend(admitted(&training.plan, arch));
        }
    }
    // One that is evaluated computes in int8 by its format.
    let precisions = [Precision::Fp32, Precision::Bf16];
    let shapes = TOKEN_BUCKETS.into_iter().flat_map(|tokens| precisions.map(|precision| (tokens, precision)));
    for (tokens, precision) in shapes {
        for model in &models {
            for formats in formats(model) {
                // Of two forms either may be the one that is compared with.
                if let Ok(compared) = ComparisonPlan::new((model, &formats), (1, tokens), precision, false, arch) {
                    all.extend(admitted(&compared.plan, arch));
                }
                if let Ok(evaluation) = EvaluationPlan::with_formats((model, &formats), (1, tokens), precision, arch) {
                    all.extend(admitted(&evaluation.plan, arch));
                }
            }
        }
    }
    all
}
