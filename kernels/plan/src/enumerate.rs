//! The one list: enumerates the kernels of a plan, and of every plan that a model can have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use precast_kernels::{Arch, Block, BuildKeys, Key, KeyVariant, Moments};
use rayon::prelude::*;

use crate::adapters::{Adapters, Target};
use crate::cache::Slots;
use crate::comparison_plan::ComparisonPlan;
use crate::config::ModelConfig;
use crate::decode_check::DecodeCheckPlan;
use crate::decoding::DecodeRequest;
use crate::evaluation::EvaluationPlan;
use crate::formats::Formats;
use crate::generation::GenerationPlan;
use crate::hidden_plan::HiddenPlan;
use crate::objective::Objective;
use crate::predictions::TopTokens;
use crate::recipe::{Precision, Recipe, Recompute};
use crate::sampling::Sampling;
use crate::share::Share;
use crate::sweep_plan::SweepPlan;
use crate::training::{Student, Teacher, TrainingPlan, TrainingRequest};
use precast_core::Plan;
use precast_core::plan::Launch;

/// Architecture of enumerated plans: it decides the variants of launches, never their keys.
const ARCH: Arch = Arch::Sim;

/// Tokens of enumerated plans: the count affects the selected variant, never the set of admitted ones.
const TOKENS: u32 = 1;

/// Decoding of enumerated plans.
const DECODE: DecodeRequest =
    DecodeRequest { slots: Slots { count: 1, seq_len: TOKENS }, sampling: Sampling::LIKELIEST };

/// Returns every (key, variant) that any run over these models can launch: training by every recipe with each pair
/// whose vocabularies fit, also of adapters, and evaluation of each model in every precision, for any token count and
/// any storage of frozen weights.
///
/// # Panics
/// If a GPU has no variant of a key that admits a launch.
pub fn build_keys(models: &[ModelConfig]) -> BuildKeys {
    let models: Vec<ModelConfig> = models.iter().map(ModelConfig::representative).collect();
    let each: Vec<BuildKeys> = models.par_iter().map(|model| launched(|mut visit| alone(model, &mut visit))).collect();
    let together = launched(|mut visit| together(&models, &mut visit));
    let all: BuildKeys = each.into_iter().chain([together]).flatten().collect();
    for arch in Arch::GPUS {
        let lacking = all.lacking(arch);
        assert!(lacking.is_empty(), "no variant for {arch} admits a launch of {lacking:?}");
    }
    all
}

/// Returns the kernels that lowered plans launch, in all variants that admit a launch: the selected one may depend on
/// the token count.
fn launched(lower: impl FnOnce(&mut dyn FnMut(&Plan))) -> BuildKeys {
    let mut all = BuildKeys::default();
    let mut not_admitted: HashMap<Key, Vec<KeyVariant>> = HashMap::new();
    lower(&mut |plan| {
        for Launch { key, params, .. } in plan.launches() {
            let rest =
                not_admitted.entry(key.clone()).or_insert_with(|| BuildKeys::of([key.clone()]).into_iter().collect());
            all.extend(rest.extract_if(.., |pair| key.kernel().admits(pair.variant, params)));
        }
    });
    all
}

/// Lowers what a model launches as a student and by itself.
///
/// A step launches the kernels of its student and of its teacher's forward pass, so models are lowered as students, as
/// teachers and alone, not in pairs: linear in models.
fn alone(model: &ModelConfig, visit: &mut impl FnMut(&Plan)) {
    students(model, visit);
    rounded(model, visit);
    evaluations(model, visit);
    generations(model, visit);
}

/// Lowers what depends on all of the models, or on none.
fn together(models: &[ModelConfig], visit: &mut impl FnMut(&Plan)) {
    teachers(models, visit);
    if let Some(model) = models.iter().find(|model| model.experts.is_none()) {
        ranks(model, visit);
        rounded_moments(model, visit);
    }
}

/// Returns a recipe for each precision and recomputation: blocks depend on nothing else of a recipe.
fn for_blocks() -> impl Iterator<Item = Recipe> {
    let [.., divergence] = Objective::EVERY;
    Recipe::every(TOKENS).filter(move |it| it.objective.is_like(divergence))
}

/// Returns a recipe for each precision and each other objective: the head does not depend on recomputation.
fn for_the_head() -> impl Iterator<Item = Recipe> {
    let [.., divergence] = Objective::EVERY;
    Recipe::every(TOKENS).filter(move |it| it.recompute == Recompute::None && !it.objective.is_like(divergence))
}

/// Lowers a model that trains, whole or as the base of adapters, and teaches itself.
///
/// Adapters of one rank on every projection represent all others: ranks, scales and the choice of projections are
/// arguments.
fn students(student: &ModelConfig, visit: &mut impl FnMut(&Plan)) {
    let mut lower = |request| TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
    let request = |recipe: &Recipe| {
        let teacher = recipe.objective.has_teacher().then_some(student);
        TrainingRequest::new(student, recipe, ARCH).taught_by(teacher)
    };
    for recipe in for_blocks() {
        // Decoding depends on the precision alone.
        let decodes = recipe.recompute == Recompute::None && DecodeRequest::draws(student);
        lower(if decodes { request(&recipe).decoding(DECODE).on_policy() } else { request(&recipe) });
    }
    for_the_head().for_each(|recipe| lower(request(&recipe)));
    let (formats, adapters) = (Formats::dense(), Adapters::uniform(student, &Target::ALL, 8, 1.0));
    let adapted = Student { config: student, formats: &formats, adapters: &adapters };
    for recipe in for_blocks() {
        // Other teachers of adapters launch what they launch for the whole model.
        lower(TrainingRequest::new(adapted, &recipe, ARCH).taught_by(Some(Teacher::Base)));
    }
}

/// Lowers a model that trains for blocks: what rounding adds depends on nothing else of a recipe.
fn rounded(student: &ModelConfig, visit: &mut impl FnMut(&Plan)) {
    let formats = every_rounding(student);
    for precision in [Precision::Fp32, Precision::Bf16] {
        let recipe = Recipe { precision, ..Recipe::PLAIN };
        let request = TrainingRequest::new((student, &formats), &recipe, ARCH);
        TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
    }
}

/// Returns formats that round to every block to which a file of any formats does: each matrix to that of one of the
/// files, and of these to one that is not used yet.
fn every_rounding(student: &ModelConfig) -> Formats {
    let files = [(Block::Q8_0, Block::Q8_0), (Block::Q4_0, Block::Q6_K), (Block::Q4_K, Block::Q6_K)];
    let files = files.map(|(layers, ends)| Formats::rounded(student, layers, ends));
    let mut used = BTreeSet::new();
    let choose = |name: &str| {
        let blocks = || files.iter().filter_map(|formats| formats.of(name));
        let block = blocks().find(|block| used.insert(*block)).or_else(|| blocks().next())?;
        Some((name.to_owned(), block))
    };
    // Embedding and head come last: only they have the formats of ends.
    let names: Vec<&str> = files[0].iter().map(|(name, _)| name).collect();
    names.into_iter().rev().filter_map(choose).collect()
}

/// Lowers each model as a teacher. It depends on the student only by the columns of the logits, in one launch, and
/// there only on whether some are masked: the narrowest student of each kind represents all.
fn teachers(models: &[ModelConfig], visit: &mut impl FnMut(&Plan)) {
    let mut students: Vec<&ModelConfig> = models.iter().filter(|model| model.experts.is_none()).collect();
    students.sort_by_key(|student| Reverse(student.vocab));
    // A teacher's format alone decides whether it computes in int8.
    let recipes = for_blocks().filter(|it| it.recompute == Recompute::None && it.precision != Precision::Int8);
    for recipe in recipes {
        let is_masked = |student: &ModelConfig| student.logit_columns() > student.vocab;
        let narrowest: BTreeMap<bool, &ModelConfig> = students.iter().map(|it| (is_masked(it), *it)).collect();
        for (teacher, student) in models.iter().flat_map(|teacher| narrowest.values().map(move |it| (teacher, *it))) {
            // A narrower teacher cannot train this student: no run, no keys.
            let request = TrainingRequest::new(student, &recipe, ARCH).taught_by(Some(teacher));
            TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
        }
        for student in narrowest.values() {
            compact(student, &recipe, visit);
        }
    }
}

/// Lowers what fills a compact cache besides the teacher, and what reads one.
fn compact(student: &ModelConfig, recipe: &Recipe, visit: &mut impl FnMut(&Plan)) {
    let top = TopTokens { vocab: student.vocab, keep: 1, temperature: 1.0 };
    let dense = Formats::dense();
    let filling = HiddenPlan::new((student, &dense), (1, TOKENS), (recipe.precision, Some(top)), ARCH);
    filling.into_iter().for_each(|filling| visit(&filling.plan));
    let request = TrainingRequest::new(student, recipe, ARCH).taught_by(Some(Teacher::Known { keep: top.keep }));
    TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
}

/// Lowers the sums over replicas and ranks, which depend on neither models nor recipes.
fn ranks(student: &ModelConfig, visit: &mut impl FnMut(&Plan)) {
    let recipe = Recipe::every(TOKENS).find(|it| !it.objective.has_teacher()).expect("a recipe of the data alone");
    let share = Share { replicas: 4, ranks: 2, rank: 0 };
    let request = TrainingRequest { share, ..TrainingRequest::new(student, &recipe, ARCH) };
    TrainingPlan::new(request).into_iter().for_each(|training| visit(&training.plan));
}

/// Lowers updates that round moments, which depend on neither models nor anything else of a recipe than the precision.
fn rounded_moments(student: &ModelConfig, visit: &mut impl FnMut(&Plan)) {
    for precision in [Precision::Fp32, Precision::Bf16] {
        let recipe = Recipe { precision, moments: Moments::Bf16, ..Recipe::PLAIN };
        let training = TrainingPlan::new(TrainingRequest::new(student, &recipe, ARCH));
        training.into_iter().for_each(|training| visit(&training.plan));
    }
}

/// Lowers evaluations of a model in each precision and form, and comparisons with another form of itself.
fn evaluations(model: &ModelConfig, visit: &mut impl FnMut(&Plan)) {
    // An evaluated model's format alone decides whether it computes in int8.
    for precision in [Precision::Fp32, Precision::Bf16] {
        for formats in formats(model) {
            let evaluation = EvaluationPlan::with_formats((model, &formats), (1, TOKENS), precision, ARCH);
            evaluation.into_iter().for_each(|evaluation| visit(&evaluation.plan));
        }
        // A sweep has a layer at a time: no pass adds a branch and computes the next layer's norm.
        let sweep = SweepPlan::new((model, &Formats::dense()), ((1, TOKENS), (1, 1)), (precision, None), ARCH);
        sweep.into_iter().for_each(|sweep| visit(&sweep.plan));
        // A comparison reads two rows of logits, of any form; a teacher's head is launched where it teaches.
        let compared = ComparisonPlan::other(model.into(), (1, TOKENS), precision, ARCH);
        compared.into_iter().for_each(|compared| visit(&compared.plan));
    }
}

/// Lowers generations by a model in each precision, and their checks. What decoding launches besides an evaluation
/// depends on no format.
fn generations(model: &ModelConfig, visit: &mut impl FnMut(&Plan)) {
    let (formats, adapters) = (Formats::dense(), Adapters::none());
    let model = Student { config: model, formats: &formats, adapters: &adapters };
    for precision in [Precision::Fp32, Precision::Bf16] {
        let generation = GenerationPlan::new(model, DECODE, precision, ARCH);
        generation.into_iter().for_each(|generation| visit(&generation.plan));
        let check = DecodeCheckPlan::new(model, DECODE.slots, precision, ARCH);
        check.into_iter().for_each(|check| visit(&check.plan));
    }
}

/// Returns formats that together cover every kernel of a frozen model with any mix of them: all dense, as much as
/// possible in each block format, and 8-bit GEMMs. No other launch of a step depends on formats, in an evaluation or
/// in a run.
fn formats(config: &ModelConfig) -> impl Iterator<Item = Formats> {
    let in_blocks = Block::ALL.into_iter().map(|block| Formats::uniform(config, block));
    let in_blocks = in_blocks.filter(|formats| !formats.is_dense());
    [Formats::dense(), Formats::int8()].into_iter().chain(in_blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models with distinct vocabularies, some with rows of whole vectors.
    fn models(count: u32) -> Vec<ModelConfig> {
        let config = ModelConfig::from_json(include_str!("../../../tests/models/tiny.json")).unwrap();
        (0..count).map(|index| ModelConfig { vocab: 1000 + index, ..config.clone() }).collect()
    }

    #[test]
    fn each_model_more_is_lowered_as_often_as_the_one_before_it() {
        let lowered = |count| {
            let (mut plans, models) = (0, models(count));
            let mut visit = |_: &Plan| plans += 1;
            models.iter().for_each(|model| alone(model, &mut visit));
            together(&models, &mut visit);
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
                pairs.extend(TrainingPlan::new(request).into_iter().flat_map(|training| crate::keys(&training.plan)));
            }
        }
        assert!(pairs.is_subset(&build_keys(&models).on(Arch::Sm89)));
    }
}
