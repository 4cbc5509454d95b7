//! One list: what a run launches is what the build enumerated, and a bundle that lacks any of it is refused
//! before the first launch.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use precast_fatbins::{Bundle, Manifest, Module, encode};
use precast_kernels::{Arch, Block, KERNELS, Key, KeyVariant};
use precast_plan::decoding::{BUCKETS, decode_phase, prefill_phase};
use precast_plan::training::{CAST, CLEAR, MICRO, TeacherBuffers, UPDATE, WIDEN, certify_phase, pass_phase};
use precast_plan::{
    Adapters, ComparisonPlan, DecodeCheckPlan, DecodeRequest, Decoding, EvaluationPlan, Formats, GenerationPlan,
    HiddenPlan, ModelConfig, Moments, Objective, Plan, PlanError, Precision, Recipe, Recompute, Resident, Sampling,
    Share, Slots, Staged, Student, Target, Teacher, Tensor, TopTokens, TrainingPlan, TrainingRequest, build_keys,
    guard::GUARD, keys,
};
use precast_runtime::sim::{Faults, Sim};
use precast_runtime::{Bound, Driver, DriverError, GraphId, KernelId, LoadError, Loading, Permit, Placement, Sealed};
use proptest::prelude::*;

use crate::support::prelude::*;
use crate::support::{Tap, Tapped};

/// What a driver was asked to do.
#[derive(Default)]
struct Log {
    loaded: BTreeSet<KeyVariant>,
    launched: BTreeSet<Key>,
    launches_before_last_load: usize,
    launches: usize,
}

/// Writes down what a driver is asked to do.
struct Recorder {
    graphs: Vec<(GraphId, Vec<Key>)>,
    log: Rc<RefCell<Log>>,
}

fn recorder() -> (Tapped<Recorder>, Rc<RefCell<Log>>) {
    let log = Rc::new(RefCell::new(Log::default()));
    (Tapped(Box::new(Sim::new(Faults::default())), Recorder { graphs: Vec::new(), log: log.clone() }), log)
}

impl Tap for Recorder {
    fn load(&mut self, on: &mut dyn Driver, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError> {
        let mut log = self.log.borrow_mut();
        log.loaded.insert(module.pair.clone());
        log.launches_before_last_load = log.launches;
        on.load(module, permit)
    }
    fn prepare(&mut self, on: &mut dyn Driver, nodes: &[Bound]) -> Result<GraphId, DriverError> {
        let graph = on.prepare(nodes)?;
        self.graphs.push((graph, nodes.iter().filter_map(|bound| bound.work.key().cloned()).collect()));
        Ok(graph)
    }
    fn run(&mut self, on: &mut dyn Driver, graph: GraphId) -> Result<(), DriverError> {
        let (_, keys) = self.graphs.iter().find(|(prepared, _)| *prepared == graph).expect("a prepared graph");
        let mut log = self.log.borrow_mut();
        log.launches += keys.len();
        log.launched.extend(keys.iter().cloned());
        on.run(graph)
    }
}

prop_compose! {
    fn model()(
        qwen2 in any::<bool>(), hidden in 1u32..4, intermediate in 1u32..40, layers in 1u32..4,
        kv_heads in 1u32..3, group in 1u32..3, head_dim in 1u32..4, vocab in 20u32..60,
        tied in any::<bool>(), bias in any::<bool>(), mlp_bias in any::<bool>(),
    ) -> ModelConfig {
        let json = tiny_config(&[
            ("architectures", serde_json::Value::Null),
            ("model_type", if qwen2 { "qwen2" } else { "llama" }.into()),
            ("hidden_size", (8 * hidden).into()), ("intermediate_size", intermediate.into()),
            ("num_hidden_layers", layers.into()), ("num_attention_heads", (kv_heads * group).into()),
            ("num_key_value_heads", kv_heads.into()), ("head_dim", (16 * head_dim).into()),
            ("vocab_size", vocab.into()), ("tie_word_embeddings", tied.into()),
            ("attention_bias", bias.into()), ("mlp_bias", mlp_bias.into()),
        ]);
        shape(&json)
    }
}

fn recipe(batch: u32, seq_len: u32, precision: Precision) -> Recipe {
    let objective = Objective::Distill { alpha: 0.5, temperature: 2.0, beta: 0.0 };
    Recipe { batch, seq_len, precision, objective, weight_decay: 0.01, clip: 1.0, ..Recipe::PLAIN }
}

/// Runs a whole step through the recorder, from the bundle of the build's list, and returns what it launched.
fn launched(training: &TrainingPlan, built: &BTreeSet<KeyVariant>, accum: u32) -> BTreeSet<Key> {
    let (driver, log) = recorder();
    let manifest = Manifest::simulated(&KERNELS, built).encode();
    let mut loading = Loading::new(Box::new(driver));
    loading.load(&Bundle::from_parts(&manifest, &[], &KERNELS).unwrap(), &training.plan).unwrap();
    let mut sealed = loading.seal(&training.plan, Placement::Arena).unwrap();
    let sent = |model: &Resident| {
        let all = model.weights.all;
        let weights = all.trained().map_or(all.tensor, |trained| trained.master);
        model.ropes.iter().flat_map(|rope| [rope.cos, rope.sin]).chain([weights]).collect::<Vec<Tensor>>()
    };
    let zeros = |sealed: &mut Sealed, tensor: Tensor| {
        sealed.write(tensor, &vec![0; tensor.bytes() as usize]).unwrap();
    };
    let teachers = || training.teachers.iter().filter_map(TeacherBuffers::model);
    let models = teachers().chain([&training.student]);
    teachers().flat_map(sent).for_each(|tensor| zeros(&mut sealed, tensor));
    zeros(&mut sealed, training.inputs.all);
    for Staged { quantize, certify, parts } in models.flat_map(|model| &model.staged) {
        parts.iter().for_each(|(_, tensor)| zeros(&mut sealed, *tensor));
        sealed.run(quantize).unwrap();
        certify.iter().for_each(|phase| sealed.run(phase).unwrap());
    }
    let certified = training.certificates.iter().enumerate().filter(|(_, certificate)| certificate.is_some());
    certified.for_each(|(number, _)| sealed.run(&certify_phase(number)).unwrap());
    sealed.run(CLEAR).unwrap();
    sent(&training.student).into_iter().for_each(|tensor| zeros(&mut sealed, tensor));
    sealed.run(CAST).unwrap();
    sealed.run(WIDEN).unwrap();
    if let Some(Decoding { ids, rows, state, prefill, .. }) = training.decoding.filter(|_| training.scores.is_some()) {
        let written = [ids, rows.slots, rows.positions, state.sequences, state.ends, state.stops];
        written.into_iter().for_each(|rows| zeros(&mut sealed, rows));
        prefill.phases().for_each(|rows| sealed.run(&prefill_phase(rows)).unwrap());
        let buckets = BUCKETS.into_iter().filter(|rows| *rows <= prefill.few_rows);
        buckets.for_each(|rows| sealed.run(&decode_phase(rows)).unwrap());
    }
    if let Some(pass) = training.pass {
        zeros(&mut sealed, pass.all);
        sealed.run(&pass_phase(pass.micros)).unwrap();
    }
    for _ in 0..accum {
        zeros(&mut sealed, training.inputs.all);
        sealed.run(MICRO).unwrap();
    }
    if !training.guards.is_empty() {
        sealed.run(GUARD).unwrap();
    }
    sealed.write(training.update, &[0; 16]).unwrap();
    sealed.run(UPDATE).unwrap();
    let log = log.borrow();
    assert_eq!(log.launches_before_last_load, 0, "a module was loaded after the first launch");
    assert_eq!(log.loaded, keys(&training.plan), "loaded is not what the plan enumerates");
    log.launched.clone()
}

/// A model's matrices in one block format, for each that its rows are whole blocks of.
fn stored(config: &ModelConfig) -> impl Iterator<Item = Formats> {
    let uniform = Block::ALL.into_iter().map(|block| Formats::uniform(config, block));
    uniform.filter(|formats| !formats.is_dense())
}

/// Returns the keys of a model's evaluation: as it is, as it may be stored, in 8 bits where something computes them;
/// and of a comparison with another form of itself.
fn evaluated(model: &ModelConfig, shape: (u32, u32), precision: Precision) -> BTreeSet<Key> {
    let evaluation = EvaluationPlan::new(model, shape, precision, Arch::Sim).unwrap();
    let mut pairs = keys(&evaluation.plan);
    for formats in stored(model).chain([Formats::dense(), Formats::int8()]) {
        let evaluation = match EvaluationPlan::with_formats((model, &formats), shape, precision, Arch::Sim) {
            Err(_) if formats.is_int8() => continue,
            evaluation => evaluation.unwrap(),
        };
        pairs.extend(keys(&evaluation.plan));
        pairs.extend(keys(&ComparisonPlan::other((model, &formats).into(), shape, precision, Arch::Sim).unwrap().plan));
    }
    pairs.into_iter().map(|pair| pair.key).collect()
}

/// Returns the keys of what follows from a model and a precision, whatever the recipe: evaluations and generations.
fn computed_alone(models: [&ModelConfig; 2], shape: (u32, u32), decode: DecodeRequest) -> BTreeSet<Key> {
    let (formats, adapters) = (Formats::dense(), Adapters::none());
    let of_model = |config: &ModelConfig, precision| {
        let model = Student { config, formats: &formats, adapters: &adapters };
        let generation = GenerationPlan::new(model, decode, precision, Arch::Sim).unwrap();
        let check = DecodeCheckPlan::new(model, decode.slots, precision, Arch::Sim).unwrap();
        let plans = [generation.plan, check.plan];
        let pairs = plans.iter().flat_map(keys).map(|pair| pair.key);
        pairs.chain(evaluated(config, shape, precision)).collect::<BTreeSet<Key>>()
    };
    let each = models.into_iter().flat_map(|config| Precision::ALL.map(|precision| of_model(config, precision)));
    each.flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn keys_requested_at_run_time_are_those_enumerated_at_build_time(
        mut teacher in model(), student in model(), batch in 1u32..3, seq_len in prop_oneof![1u32..12, Just(4),
            Just(8)], accum in 1u32..3,
    ) {
        teacher.vocab = teacher.vocab.max(student.vocab);
        let built = build_keys(&[teacher.clone(), student.clone()]).on(Arch::Sim);
        let slots = Slots { count: 70, seq_len };
        let decode = DecodeRequest { slots, sampling: Sampling::LIKELIEST };
        let mut requested = computed_alone([&teacher, &student], (batch, seq_len), decode);
        for recipe in Recipe::every(seq_len).map(|recipe| Recipe { batch, ..recipe }) {
            // None where int8 has nothing to rotate.
            let planned = |request: TrainingRequest<'_>| match TrainingPlan::new(request) {
                Err(PlanError::StudentRotation { .. }) if recipe.precision == Precision::Int8 => None,
                training => Some(training.unwrap()),
            };
            // Every way these two models can be used.
            for (teacher, student) in [(&teacher, &student), (&teacher, &teacher), (&student, &student)] {
                let request = TrainingRequest::new(student, &recipe, Arch::Sim).taught_by(Some(teacher));
                let Some(training) = planned(request) else { continue };
                requested.extend(launched(&training, &built, accum));
            }
            let (formats, adapters) = (Formats::dense(), Adapters::none());
            // A student learns from the most likely tokens of a cache.
            if recipe.objective.has_teacher() {
                let top = TopTokens { vocab: student.vocab, keep: 1, temperature: 2.0 };
                let filling = HiddenPlan::new((&teacher, &formats), (batch, seq_len), (recipe.precision.exact(),
                    Some(top)), Arch::Sim);
                requested.extend(keys(&filling.unwrap().plan).into_iter().map(|pair| pair.key));
                let compact = TrainingRequest::new(&student, &recipe, Arch::Sim).taught_by(Some(Teacher::Known {
                    keep: 1 }));
                let training = planned(compact);
                requested.extend(training.iter().flat_map(|training| keys(&training.plan)).map(|pair| pair.key));
            }
            // A student learns from what it writes.
            let reverse = matches!(recipe.objective, Objective::Distill { beta: 1.0, .. });
            if reverse && recipe.recompute == Recompute::None {
                let request = TrainingRequest::new(&student, &recipe, Arch::Sim).decoding(decode).on_policy();
                let training = planned(request.taught_by(Some(&teacher)));
                requested.extend(training.iter().flat_map(|training| launched(training, &built, accum)));
            }
            // Replicas and ranks add up what each has, moments may be rounded, and several teachers read other prompts.
            let whole = Student { config: &student, formats: &formats, adapters: &adapters };
            let several = Share { replicas: 4, ranks: 2, rank: 0 };
            let own = [Teacher::Model { config: &teacher, formats: &formats }, Teacher::Student];
            let own = own.into_iter().filter(|_| recipe.objective.has_teacher()).collect();
            let recipe = Recipe { moments: Moments::Bf16, own_prompts: true, ..recipe };
            let request = TrainingRequest { teachers: own, student: whole, recipe, share: several,
                decode: Some(decode), on_policy: true, pass: 1, arch: Arch::Sim };
            let training = planned(request);
            requested.extend(training.iter().flat_map(|training| keys(&training.plan)).map(|pair| pair.key));
            for model in [&teacher, &student] {
                let (formats, adapters) = (Formats::dense(), Adapters::uniform(model, &Target::ALL, 3, 2.0));
                let adapted = Student { config: model, formats: &formats, adapters: &adapters };
                let base = recipe.objective.has_teacher().then_some(Teacher::Base);
                let training = planned(TrainingRequest::new(adapted, &recipe,
                    Arch::Sim).taught_by(base).decoding(decode));
                requested.extend(training.iter().flat_map(|training| launched(training, &built, accum)));
            }
            for formats in stored(&teacher).chain([Formats::int8()]).filter(|_| recipe.recompute == Recompute::None) {
                let model = Some((&teacher, &formats));
                let request = TrainingRequest::new(&student, &recipe, Arch::Sim).taught_by(model);
                match TrainingPlan::new(TrainingRequest { pass: accum, ..request }) {
                    Ok(training) => requested.extend(launched(&training, &built, accum)),
                    Err(refused) => {
                        let is_int8 = formats.is_int8() || recipe.precision == Precision::Int8;
                        prop_assert!(is_int8, "{refused}");
                    }
                }
            }
        }
        let enumerated: BTreeSet<Key> = built.into_iter().map(|pair| pair.key).collect();
        prop_assert_eq!(requested, enumerated);
    }
}

/// A plan of two rows of 16 tokens that a tiny model learns from itself.
fn tiny_plan(precision: Precision) -> Plan {
    let model = shape(&tiny_config(&[]));
    let recipe = recipe(2, 16, precision);
    TrainingPlan::new(TrainingRequest::new(&model, &recipe, Arch::Sim).taught_by(Some(&model))).unwrap().plan
}

#[test]
fn without_any_one_key_a_run_does_not_start() {
    let plan = tiny_plan(Precision::Bf16);
    let needed = keys(&plan);
    for removed in &needed {
        let rest: Vec<&KeyVariant> = needed.iter().filter(|pair| *pair != removed).collect();
        let manifest = Manifest::simulated(&KERNELS, rest).encode();
        let (driver, log) = recorder();
        match Loading::new(Box::new(driver)).load(&Bundle::from_parts(&manifest, &[], &KERNELS).unwrap(), &plan) {
            Err(LoadError::Missing(coverage)) => assert_eq!(coverage.missing, std::slice::from_ref(removed)),
            other => panic!("{removed}: {other:?}"),
        }
        assert!(log.borrow().loaded.is_empty(), "{removed}: modules were loaded all the same");
    }
}

#[test]
fn every_missing_key_is_named_with_what_builds_it() {
    let case = Case::new(17 * 4);
    let mut kept = keys(&tiny_plan(Precision::Fp32));
    kept.retain(|pair| !pair.key.text().starts_with("rmsnorm"));
    case.write("lacking.bundle", encode(&Manifest::simulated(&KERNELS, &kept), |_| &[]));
    let run = "--precision fp32 --device sim --bundle lacking.bundle";
    insta::assert_snapshot!(case.anonymous(&case.distill("out", run).fails(3, "")));
}
