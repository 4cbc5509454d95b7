//! The one list: which kernels a plan launches, and which plans a model can have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use precast_kernels::{Arch, Block, Key, KeyVariant, Variant};

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

/// Tokens of the plans that are enumerated: how many there are says which variant is selected, and never which admit a launch.
const TOKENS: u32 = 1;

/// Every (key, variant) of the bundle that a plan launches. The only enumeration: the build compiles it, start-up checks it,
/// the step executes that same plan.
pub fn keys(plan: &Plan) -> BTreeSet<KeyVariant> {
    plan.launches().filter_map(Launch::pair).collect()
}

/// Every (key, variant) that any run over these models can launch: training by every recipe with each pair whose
/// vocabularies fit, of adapters too, and evaluation of each model in every precision, whatever the token count and however
/// frozen weights are stored.
pub fn build_keys(models: &[ModelConfig], arch: Arch) -> BTreeSet<KeyVariant> {
    let mut all = BTreeSet::new();
    // Every variant that admits a launch: which one is selected may depend on the token count.
    let mut not_admitted: HashMap<Key, Vec<Variant>> = HashMap::new();
    lower(models, arch, |plan| {
        for Launch { key, params, .. } in plan.launches() {
            let rest = not_admitted.entry(key.clone()).or_insert_with(|| key.kernel().variants(arch));
            let admitted = rest.extract_if(.., |variant| key.kernel().admits(*variant, params));
            all.extend(admitted.map(|variant| KeyVariant { key: key.clone(), variant }));
        }
    });
    all
}

/// Lowers plans that launch, together, whatever any run over these models does.
///
/// A step launches what its student launches and its teacher's forward pass, so models are lowered as students, as teachers
/// and by themselves, not in pairs: how often is linear in models.
///
/// Two blocks stand for all of a model's: blocks are alike, so more of them add launches but no keys.
fn lower(models: &[ModelConfig], arch: Arch, mut visit: impl FnMut(&Plan)) {
    let models: Vec<ModelConfig> = models
        .iter()
        .map(|config| ModelConfig { layers: config.layers.min(2), max_positions: u32::MAX, ..config.clone() })
        .collect();
    for model in &models {
        students(model, arch, &mut visit);
        evaluations(model, arch, &mut visit);
    }
    teachers(&models, arch, &mut visit);
    if let Some(model) = models.first() {
        ranks(model, arch, &mut visit);
    }
}

/// One recipe of each precision and recomputation: what blocks launch depends on nothing else of one.
fn for_blocks() -> impl Iterator<Item = Recipe> {
    let [.., divergence] = Objective::EVERY;
    Recipe::every(TOKENS).filter(move |it| it.objective.is_like(divergence))
}

/// One recipe of each precision and each other objective: the head knows nothing of what is recomputed.
fn for_the_head() -> impl Iterator<Item = Recipe> {
    let [.., divergence] = Objective::EVERY;
    Recipe::every(TOKENS).filter(move |it| it.recompute == Recompute::None && !it.objective.is_like(divergence))
}

/// Lowers a model that trains, whole or as the base of adapters, and teaches itself.
///
/// Adapters of one rank on every projection stand for any others: ranks, scales and which projections they go with are
/// arguments.
fn students(student: &ModelConfig, arch: Arch, visit: &mut impl FnMut(&Plan)) {
    let mut lower = |request| TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
    for recipe in for_blocks().chain(for_the_head()) {
        let teacher = recipe.objective.has_teacher().then_some(student);
        lower(TrainingRequest::new(student, &recipe, arch).taught_by(teacher));
    }
    let (formats, adapters) = (Formats::dense(), Adapters::uniform(student, &Target::ALL, 8, 1.0));
    let adapted = Student { config: student, formats: &formats, adapters: &adapters };
    for recipe in for_blocks() {
        // Whoever else teaches adapters launches what it would teach the whole model.
        lower(TrainingRequest::new(adapted, &recipe, arch).taught_by(Some(Teacher::Base)));
    }
}

/// Lowers each model as a teacher. Of the student it knows how many logits a row has, and of that the one launch that reads it
/// asks whether they are whole vectors: the narrowest students stand for all that are alike in that.
fn teachers(models: &[ModelConfig], arch: Arch, visit: &mut impl FnMut(&Plan)) {
    let mut students: Vec<&ModelConfig> = models.iter().collect();
    students.sort_by_key(|student| Reverse(student.vocab));
    // A teacher computes in int8 by its format alone.
    let recipes = for_blocks().filter(|it| it.recompute == Recompute::None && it.precision != Precision::Int8);
    for recipe in recipes {
        let width = |student: &ModelConfig| recipe.precision.dtype().vector_width(student.vocab);
        let narrowest: BTreeMap<u32, &ModelConfig> = students.iter().map(|it| (width(it), *it)).collect();
        for (teacher, student) in models.iter().flat_map(|teacher| narrowest.values().map(move |it| (teacher, *it))) {
            // A narrower teacher cannot train this student: no run, no keys.
            let request = TrainingRequest::new(student, &recipe, arch).taught_by(Some(teacher));
            TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
        }
    }
}

/// Lowers what adds replicas and ranks up: it depends on neither models nor recipes.
fn ranks(student: &ModelConfig, arch: Arch, visit: &mut impl FnMut(&Plan)) {
    let recipe = Recipe::every(TOKENS).find(|it| !it.objective.has_teacher()).expect("a recipe of the data alone");
    let share = Share { replicas: 4, ranks: 2, rank: 0 };
    let request = TrainingRequest { share, ..TrainingRequest::new(student, &recipe, arch) };
    TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
}

/// Lowers a model that is evaluated in each precision and form, and compared with another form of itself.
fn evaluations(model: &ModelConfig, arch: Arch, visit: &mut impl FnMut(&Plan)) {
    // One that is evaluated computes in int8 by its format.
    for precision in [Precision::Fp32, Precision::Bf16] {
        for formats in formats(model) {
            let evaluation = EvaluationPlan::with_formats((model, &formats), (1, TOKENS), precision, arch);
            evaluation.into_iter().for_each(|evaluation| visit(&evaluation.plan));
        }
        // What compares reads two rows of logits, whatever form they are of.
        let compared = ComparisonPlan::other((model, &Formats::dense()), (1, TOKENS), precision, arch);
        compared.into_iter().for_each(|compared| visit(&compared.plan));
    }
}

/// Formats in which every kernel occurs that a frozen model with any mix of them launches: all dense, as much as can be in
/// each block format, and products of 8 bits. What else a step launches does not depend on them, be it an evaluation's or a teacher's in a run.
fn formats(config: &ModelConfig) -> impl Iterator<Item = Formats> {
    let in_blocks = Block::ALL.into_iter().map(|block| Formats::uniform(config, block));
    let in_blocks = in_blocks.filter(|formats| !formats.is_dense());
    [Formats::dense(), Formats::int8()].into_iter().chain(in_blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models of vocabularies of their own, rows of whole vectors and others.
    fn models(count: u32) -> Vec<ModelConfig> {
        let config = ModelConfig::from_json(include_str!("../../../tests/models/tiny.json")).unwrap();
        (0..count).map(|index| ModelConfig { vocab: 1000 + index, ..config.clone() }).collect()
    }

    #[test]
    fn each_model_more_is_lowered_as_often_as_the_one_before_it() {
        let lowered = |count| {
            let mut plans = 0;
            lower(&models(count), Arch::Sim, |_| plans += 1);
            plans
        };
        let [few, more, most] = [2, 12, 22].map(lowered);
        assert_eq!(most - more, more - few);
    }

    #[test]
    fn keys_of_pairs_are_those_of_the_narrowest_students() {
        let (models, mut pairs) = (models(4), BTreeSet::new());
        for (teacher, student) in models.iter().flat_map(|teacher| models.iter().map(move |it| (teacher, it))) {
            for recipe in Recipe::every(9) {
                let request = TrainingRequest::new(student, &recipe, Arch::Sm89).taught_by(Some(teacher));
                pairs.extend(TrainingPlan::new(request).into_iter().flat_map(|training| keys(&training.plan)));
            }
        }
        assert!(pairs.is_subset(&build_keys(&models, Arch::Sm89)));
    }
}
