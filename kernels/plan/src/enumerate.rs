//! The one list: which kernels a plan launches, and which plans a model can have.

use std::collections::{BTreeMap, BTreeSet};

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
use crate::recipe::{Precision, Recipe, Recompute};
use crate::share::Share;
use crate::training::{Student, Teacher, TrainingPlan, TrainingRequest};

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

/// Recipes that together launch whatever any launches: the head knows nothing of what is recomputed, and blocks nothing of the
/// divergence.
fn kinds(tokens: u32) -> impl Iterator<Item = Recipe> {
    let [.., divergence] = Objective::EVERY;
    Recipe::every(tokens).filter(move |it| it.recompute == Recompute::None || it.objective.is_like(divergence))
}

/// One recipe of each precision in which a teacher computes: its forward pass depends on nothing else of one.
fn teaching(tokens: u32) -> impl Iterator<Item = Recipe> {
    let [.., divergence] = Objective::EVERY;
    kinds(tokens).filter(move |it| it.recompute == Recompute::None && it.objective.is_like(divergence))
}

/// Students by the one thing that a teacher's forward pass knows of them.
fn by_vocab(models: &[ModelConfig]) -> BTreeMap<u32, Vec<&ModelConfig>> {
    let mut students: BTreeMap<u32, Vec<&ModelConfig>> = BTreeMap::new();
    models.iter().for_each(|model| students.entry(model.vocab).or_default().push(model));
    students
}

/// Every (key, variant) that any run over these models can launch: training by every recipe with each pair whose
/// vocabularies fit, of adapters too, and evaluation of each model in every precision, whatever the token count and however
/// frozen weights are stored.
///
/// A step launches what its student launches and its teacher's forward pass, so models are lowered as students and as
/// teachers, not in pairs: how often is linear in models and in vocabularies.
///
/// Two blocks stand for all of a model's: blocks are alike, so more of them add launches but no keys. So do adapters of one
/// rank on every projection for any others: ranks, scales and which projections they go with are arguments.
pub fn build_keys(models: &[ModelConfig], arch: Arch) -> BTreeSet<KeyVariant> {
    let models: Vec<ModelConfig> = models
        .iter()
        .map(|config| ModelConfig { layers: config.layers.min(2), max_positions: u32::MAX, ..config.clone() })
        .collect();
    let mut all = BTreeSet::new();
    for student in &models {
        let (formats, adapters) = (Formats::dense(), Adapters::uniform(student, &Target::ALL, 8, 1.0));
        let adapted = Student { config: student, formats: &formats, adapters: &adapters };
        for recipe in TOKEN_BUCKETS.into_iter().flat_map(kinds) {
            let teaches = recipe.objective.has_teacher();
            let whole = TrainingRequest::new(student, &recipe, arch).taught_by(teaches.then_some(student));
            // Whoever else teaches adapters launches what it would teach the whole model.
            let adapted = TrainingRequest::new(adapted, &recipe, arch).taught_by(teaches.then_some(Teacher::Base));
            for training in [whole, adapted].into_iter().filter_map(|request| TrainingPlan::new(request).ok()) {
                all.extend(admitted(&training.plan, arch));
            }
        }
    }
    for teacher in &models {
        for recipe in TOKEN_BUCKETS.into_iter().flat_map(teaching) {
            for students in by_vocab(&models).values() {
                // A narrower teacher cannot train this student: no run, no keys.
                let mut lowered = students.iter().map(|student| {
                    TrainingPlan::new(TrainingRequest::new(*student, &recipe, arch).taught_by(Some(teacher)))
                });
                if let Some(training) = lowered.find_map(Result::ok) {
                    all.extend(admitted(&training.plan, arch));
                }
            }
        }
    }
    // What adds replicas and ranks up depends on neither models nor recipes.
    for (student, recipe) in models.iter().zip(Recipe::every(1)) {
        let recipe = Recipe { objective: Objective::CrossEntropy, ..recipe };
        let share = Share { replicas: 4, ranks: 2, rank: 0 };
        if let Ok(training) =
            TrainingPlan::new(TrainingRequest { share, ..TrainingRequest::new(student, &recipe, arch) })
        {
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
                if let Ok(compared) = ComparisonPlan::other((model, &formats), (1, tokens), precision, arch) {
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
