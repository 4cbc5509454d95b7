//! The one list holds: the build enumerates every launch of every run.

use precast_kernels::{BuildKeys, qk_norm};
use precast_plan::family::{Bias, Experts, FAMILIES, Family, QkNorm};
use proptest::prelude::*;

use crate::support::*;

prop_compose! {
    fn kind()(window in proptest::option::of(1u32..100), is_rotated in any::<bool>()) -> LayerConfig {
        LayerConfig { window, rope: is_rotated.then_some(0), ..LayerConfig::FULL }
    }
}

prop_compose! {
    fn model()(
        family in 0..FAMILIES.len(),
        hidden in prop_oneof![1u32..40, (1u32..10).prop_map(|n| 4 * n), (1u32..3).prop_map(|n| 32 * n)],
        intermediate in prop_oneof![1u32..300, (1u32..10).prop_map(|n| 32 * n), (1u32..3).prop_map(|n| 256 * n)],
        layers in proptest::collection::vec(kind(), 1..5),
        kv_heads in 1u32..4,
        group in 1u32..4,
        head_dim in prop_oneof![8 => 1u32..9, 1 => Just(16)],
        vocab in 2u32..3000,
        tied in any::<bool>(),
        bias in any::<bool>(),
        mlp_bias in any::<bool>(),
        scaled in any::<bool>(),
        delta_heads in (1u32..3, 1u32..4),
        experts in (1u32..7, 1u32..4, any::<bool>()),
    ) -> ModelConfig {
        // No family normalizes heads and leaves a layer unrotated.
        let rotates = FAMILIES[family].qk_norm != QkNorm::None;
        let (count, chosen, normalizes) = experts;
        let has_experts = FAMILIES[family].experts != Experts::None;
        let has_shared = FAMILIES[family].experts == Experts::RoutedAndShared;
        let experts = ExpertsConfig { count, chosen: chosen.min(count), normalizes, has_shared };
        // Nor scales the branches that it normalizes, or what experts add.
        let is_unscaled = FAMILIES[family].modules.o_norm.is_some() || has_experts;
        let residual = if is_unscaled { 1.0 } else { 0.5 };
        // Nor bounds a window where there is the gated delta rule.
        let mixes = FAMILIES[family].delta_rule;
        let kind = |layer: LayerConfig| match layer.window {
            Some(_) if mixes => LayerConfig::DELTA_RULE,
            _ => LayerConfig { rope: layer.rope.or(rotates.then_some(0)), ..layer },
        };
        let layers = layers.into_iter().map(kind);
        let (keys, share) = delta_heads;
        ModelConfig {
            family: &FAMILIES[family],
            hidden: hidden * 8,
            intermediate,
            experts: has_experts.then_some(experts),
            layers: layers.collect(),
            heads: kv_heads * group,
            kv_heads,
            head_dim: head_dim * 16,
            rotary: match head_dim * 4 {
                rotary if mixes && qk_norm::gated::supports(head_dim * 16, rotary) => rotary,
                _ => head_dim * 16,
            },
            delta_heads: mixes.then_some(DeltaHeads { keys, values: keys * share }),
            vocab,
            padding: None,
            max_positions: 4096,
            rms_norm_eps: 1e-6,
            ropes: vec![RopeConfig { theta: 1e4, scaling: None }],
            tied,
            score_scale: 0.125,
            multipliers: match scaled {
                true => Multipliers { embedding: 2.0, residual, logits: 3.0 },
                false => Multipliers::NONE,
            },
            qkv_bias: has(FAMILIES[family].qkv_bias, bias),
            o_bias: has(FAMILIES[family].o_bias, bias),
            mlp_bias: has(FAMILIES[family].mlp_bias, mlp_bias),
        }
    }
}

/// Draws a model that trains: of a family with experts, one without.
fn student() -> impl Strategy<Value = ModelConfig> {
    model().prop_map(|model| {
        let trains = |family: &&Family| family.experts == Experts::None && model.family.gguf.starts_with(family.gguf);
        let family = FAMILIES.iter().find(|family| *family == model.family && model.experts.is_none());
        let family = family.or_else(|| FAMILIES.iter().rev().find(trains)).expect("a family without experts");
        ModelConfig { family, experts: None, ..model }
    })
}

fn has(bias: Bias, configured: bool) -> bool {
    bias == Bias::Always || configured && bias != Bias::Never
}

fn recipe(batch: u32, seq_len: u32, precision: Precision) -> Recipe {
    Recipe { batch, seq_len, precision, ..RECIPE }
}

/// Draws any recipe that flags can reach.
fn recipes() -> impl Strategy<Value = Recipe> {
    let kinds = proptest::sample::select(Recipe::every(1).collect::<Vec<_>>());
    let moments = proptest::sample::select(&Moments::ALL[..]);
    (kinds, moments, 1u32..40, 1u32..700, any::<bool>()).prop_map(|(recipe, moments, batch, seq_len, own_prompts)| {
        Recipe { batch, seq_len, own_prompts, moments, ..recipe }
    })
}

/// Returns a function that draws below a number.
fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |of| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % of
    }
}

/// Draws a mix of formats that a file of this model may have, from a seed: each matrix is dense or in blocks of its
/// own.
fn mix(config: &ModelConfig, seed: u64) -> Formats {
    let mut draw = draws(seed);
    let matrices = Parameters::new(config).list.into_iter().filter(|parameter| parameter.shape.len() == 2);
    let drawn = matrices.filter_map(|matrix| {
        let fitting: Vec<Block> =
            Block::ALL.into_iter().filter(|block| matrix.shape[1].is_multiple_of(block.elems())).collect();
        // One in eight is dense.
        (!fitting.is_empty() && draw(8) > 0).then(|| (matrix.name, fitting[draw(fitting.len())]))
    });
    drawn.collect()
}

/// Draws adapters of any ranks on any projections of any layers, from a seed; at least one.
fn adapters(config: &ModelConfig, seed: u64) -> Adapters {
    let mut draw = draws(seed);
    let all = Adapters::uniform(config, &Target::ALL, 1, 1.0);
    let all: Vec<String> = all.iter().map(|(name, _)| name.to_owned()).collect();
    let always = draw(all.len());
    let drawn = all.into_iter().enumerate().filter_map(|(index, name)| {
        let rank = 1 + if draw(2) == 0 { draw(16) } else { draw(Adapter::MOST_RANK as usize) } as u32;
        (index == always || draw(3) == 0).then_some((name, Adapter { rank, scale: 0.5 }))
    });
    drawn.collect()
}

/// Every other request is of an on-policy run, of any slots, where it may be.
fn on_policy<'a>(request: TrainingRequest<'a>, may_be: bool, seed: u64) -> TrainingRequest<'a> {
    let slots = Slots { count: 1 + (seed >> 1) as u32 % 600, seq_len: request.recipe.seq_len };
    let decode = DecodeRequest { slots, sampling: Sampling::PLAIN };
    if may_be && seed.is_multiple_of(2) { request.decoding(decode).on_policy() } else { request }
}

/// True if rows of the first GEMM of the gated delta rule are no whole vectors, which int8 refuses.
fn has_odd_rows(config: &ModelConfig) -> bool {
    config.delta_heads.is_some_and(|heads| heads.projected() % 8 != 0)
}

fn archs() -> impl Strategy<Value = Arch> {
    proptest::sample::select([&Arch::GPUS[..], &[Arch::Sm90Portable, Arch::Sim]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A student whole, or adapters on a base in any formats; taught by another model in any formats, or adapters by
    /// their base.
    #[test]
    fn every_plan_is_covered_by_the_build(
        mut teacher in model(),
        student in student(),
        recipe in recipes(),
        arch in archs(),
        seed in any::<u64>(),
    ) {
        teacher.vocab = teacher.vocab.max(student.vocab);
        let built = build_keys(&[teacher.clone(), student.clone()]).on(arch);
        let shape = (recipe.batch, recipe.seq_len);
        let of_teacher = [Formats::dense(), mix(&teacher, seed ^ 1), Formats::int8()];
        let mut teachers: Vec<Teacher<'_>> = Vec::new();
        for formats in &of_teacher {
            let model = (&teacher, formats);
            match EvaluationPlan::with_formats(model, shape, recipe.precision, arch) {
                Err(PlanError::Int8Precision | PlanError::Rotation { .. }) if formats.is_int8() => continue,
                Err(PlanError::DeltaRule { .. }) if formats.is_int8() && has_odd_rows(&teacher) => continue,
                evaluation => assert_covered(&built, &evaluation.unwrap().plan),
            }
            for lower in [ComparisonPlan::other, ComparisonPlan::reference] {
                assert_covered(&built, &lower(model.into(), shape, recipe.precision, arch).unwrap().plan);
            }
            if !formats.is_int8() {
                let top = TopTokens { vocab: student.vocab, keep: 1, temperature: 2.0 };
                for results in [None, Some(top)].map(|top| (recipe.precision, top)) {
                    assert_covered(&built, &HiddenPlan::new(model, shape, results, arch).unwrap().plan);
                    assert_covered(&built, &SweepPlan::new(model, (shape, (2, 2)), results, arch).unwrap().plan);
                }
            }
            teachers.push(model.into());
        }
        teachers.extend([Teacher::Cached(&teacher), Teacher::Known { keep: 1 }]);
        let (dense, stored, none, some) = (Formats::dense(), mix(&student, seed), Adapters::none(), adapters(&student,
            seed));
        let [layers, ends] = [
            [Block::Q8_0, Block::Q4_0, Block::Q4_K][seed as usize % 3],
            [Block::Q8_0, Block::Q6_K][seed as usize / 3 % 2],
        ];
        let rounded = Formats::rounded(&student, layers, ends);
        let all = [(&dense, &none), (&dense, &some), (&stored, &some), (&rounded, &none)];
        for (formats, adapters) in all {
            let student = Student { config: &student, formats, adapters };
            let base = (adapters.iter().count() > 0).then_some(Teacher::Base);
            for teacher in teachers.iter().copied().chain(base).chain([Teacher::Student]) {
                let may_decode = formats.is_dense();
                let request = on_policy(TrainingRequest::new(student, &recipe, arch), may_decode, seed);
                match TrainingPlan::new(request.taught_by(Some(teacher))) {
                    Err(PlanError::DeltaRule { .. }) if has_odd_rows(student.config) => {}
                    Err(PlanError::Rounded { columns, .. }) if std::ptr::eq(formats, &rounded) => {
                        prop_assert!(columns % 32 != 0);
                    }
                    Err(PlanError::StudentRotation { .. } | PlanError::StoredInt8)
                        if recipe.precision == Precision::Int8 => {}
                    training => assert_covered(&built, &training.unwrap().plan),
                }
            }
            let evaluation = EvaluationPlan::with(student, shape, recipe.precision, arch).unwrap();
            assert_covered(&built, &evaluation.plan);
            let compared = ComparisonPlan::student(student, &teacher, shape, recipe.precision, arch).unwrap();
            assert_covered(&built, &compared.plan);
        }
    }

    #[test]
    fn keys_parse_back_and_their_entries_are_unique(model in model(), arch in archs()) {
        let all = build_keys(&[model]);
        let built = all.on(arch);
        // Plans of another architecture were lowered: this one has a variant of each key.
        prop_assert!(all.lacking(arch).is_empty());
        let mut entries = BTreeSet::new();
        for pair in &built {
            let parsed = KERNELS.parse(pair.key.text()).unwrap();
            prop_assert_eq!(&parsed, &pair.key);
            prop_assert!(pair.key.kernel().variants(arch).contains(&pair.variant));
            prop_assert!(entries.insert(pair.entry(arch)), "{} is not unique", pair);
        }
    }

    #[test]
    fn no_two_live_buffers_share_memory(
        mut teacher in model(),
        student in student(),
        recipe in recipes(),
        seed in any::<u64>(),
    ) {
        teacher.vocab = teacher.vocab.max(student.vocab);
        let is_int8 = recipe.precision == Precision::Int8;
        let planned = |plan: Result<TrainingPlan, PlanError>| match plan {
            Err(PlanError::StudentRotation { .. }) if is_int8 => None,
            Err(PlanError::DeltaRule { .. }) if is_int8 && has_odd_rows(&student) => None,
            plan => Some(plan.unwrap().plan),
        };
        let formats = mix(&teacher, seed);
        let slots = Slots { count: 1 + seed as u32 % 600, seq_len: recipe.seq_len };
        let decode = DecodeRequest { slots, sampling: Sampling::LIKELIEST };
        let decode = Some(decode).filter(|_| DecodeRequest::draws(&student));
        let on_policy = decode.is_some();
        let whole = TrainingRequest { decode, on_policy, ..TrainingRequest::new(&student, &recipe, Arch::Sim) };
        let int8 = TrainingPlan::new(whole.clone().taught_by(Some((&teacher, &Formats::int8()))));
        let whole = TrainingPlan::new(whole.taught_by(Some((&teacher, &formats))));
        let (formats, adapters) = (if is_int8 { Formats::dense() } else { mix(&student, seed) }, adapters(&student,
            seed));
        let adapted = Student { config: &student, formats: &formats, adapters: &adapters };
        let adapted = TrainingRequest { decode, on_policy, ..TrainingRequest::new(adapted, &recipe, Arch::Sim) };
        let adapted = adapted.taught_by(Some(Teacher::Base));
        let adapted = TrainingPlan::new(adapted);
        let int8 = int8.ok().map(|training| training.plan);
        // Replays the plan, each byte range owned by its last writer: every read must find its own buffer.
        let plans: Vec<_> = [planned(whole), planned(adapted), int8].into_iter().flatten().collect();
        let mut owner: Vec<(u64, u64, u32)> = Vec::new();
        for (plan, phase) in plans.iter().flat_map(|plan| plan.phases.iter().map(move |phase| (plan, phase))) {
            // Start-up phases pass memory on to each other.
            let startup = phase.name.starts_with("quantize") || phase.name.starts_with("certify");
            let decodes = phase.name.starts_with("decode.");
            if !startup && !decodes || ["quantize.0", "quantize.student.0"].contains(&&*phase.name) {
                let persistent = plan.buffers.iter().zip(0..).filter(|(buffer, _)| buffer.is_persistent());
                owner = persistent.map(|(buffer, id)| (buffer.offset, buffer.offset + buffer.bytes(), id)).collect();
            }
            if phase.name.starts_with("prefill.") {
                // Those of a stage are written by the host or by one of its phases.
                let staged = plan.buffers.iter().zip(0..).filter(|(buffer, _)| buffer.lifetime == Lifetime::Stage);
                owner.extend(staged.map(|(buffer, id)| (buffer.offset, buffer.offset + buffer.bytes(), id)));
            }
            // Written by the host before a phase.
            if phase.name.starts_with("quantize") || phase.name.starts_with("widen.") {
                let staged = phase.nodes[0].touches()[0].buffer;
                let buffer = plan.buffer(staged);
                let (start, end) = (buffer.offset, buffer.offset + buffer.bytes());
                owner.retain(|(s, e, _)| *e <= start || *s >= end);
                owner.push((start, end, staged.0));
            }
            for node in &phase.nodes {
                for touch in node.touches() {
                    let buffer = plan.buffer(touch.buffer);
                    let (start, end) = (buffer.offset, buffer.offset + buffer.bytes());
                    let own = |owner: &(u64, u64, u32)| owner.2 == touch.buffer.0;
                    if touch.access.reads() {
                        prop_assert!(owner.iter().any(own), "{} reads {} after it was \
                            overwritten", node.label, buffer.name);
                    }
                    if touch.access.writes() && !owner.iter().any(own) {
                        owner.retain(|(s, e, _)| *e <= start || *s >= end);
                        owner.push((start, end, touch.buffer.0));
                    }
                }
            }
        }
    }
}

/// Architectures differ in how a kernel is built, never in what is computed: the same launches of the same keys. The
/// division of K is an architecture's choice, and so is in the parameter block: the simulated GPU divides as sm_90a
/// does. Without division there are no semaphores to clear.
#[test]
fn every_architecture_launches_the_same_keys() {
    let (teacher, student) = (config("qwen2.5-1.5b"), config("qwen2.5-0.5b"));
    let (dense, all) = (Formats::dense(), Adapters::uniform(&student, &Target::ALL, 16, 1.0));
    for (adapters, precision) in [Adapters::none(), all].iter().flat_map(|one| Precision::ALL.map(|two| (one, two))) {
        for (batch, seq_len) in [(1, 33), (8, 1024)] {
            let launches = |arch: Arch| -> Vec<(String, String, Vec<u8>)> {
                let student = Student { config: &student, formats: &dense, adapters };
                let plan = taught(&teacher, student, &recipe(batch, seq_len, precision), arch).plan;
                let of_phase = |phase: Phase| {
                    let name = phase.name.clone();
                    let launches: Vec<_> = phase.launches().map(|l| (l.key.to_string(), l.params.clone())).collect();
                    launches.into_iter().map(move |(key, params)| (name.clone(), key, params))
                };
                plan.phases.into_iter().flat_map(of_phase).collect()
            };
            let expected = launches(Arch::Sim);
            let keys = |launches: &[(String, String, Vec<u8>)]| -> Vec<[String; 2]> {
                let computes = launches.iter().filter(|(_, key, _)| !key.starts_with("fill{"));
                computes.map(|(phase, key, _)| [phase.clone(), key.clone()]).collect()
            };
            for arch in Arch::GPUS {
                let found = launches(arch);
                assert!(keys(&found) == keys(&expected), "{arch}, {precision:?}, {batch} x {seq_len}");
                assert!(arch != Arch::Sm90a || found == expected, "{precision:?}, {batch} x {seq_len}");
            }
        }
    }
}

/// Plans Qwen2.5-1.5B to 0.5B on an H200 for every recomputation.
fn qwen_by_recompute(batch: u32, seq_len: u32, precision: Precision) -> [Plan; 3] {
    let (teacher, student) = (config("qwen2.5-1.5b"), config("qwen2.5-0.5b"));
    Recompute::ALL.map(|recompute| {
        let recipe = Recipe { recompute, ..recipe(batch, seq_len, precision) };
        taught(&teacher, &student, &recipe, Arch::Sm90a).plan
    })
}

const LAYERS: u64 = 24;
const HIDDEN: u64 = 896;
const INTERMEDIATE: u64 = 4864;

#[test]
fn recomputing_takes_the_same_kernels_and_less_memory() {
    for precision in [Precision::Fp32, Precision::Bf16] {
        let plans = qwen_by_recompute(8, 1024, precision);
        let [none, norms, blocks] = &plans;
        assert!(plans.iter().all(|plan| keys(plan) == keys(none)));
        let launches = plans.each_ref().map(|plan| plan.launches().count() as u64);
        // Two norms and SwiGLU; of a block all but the last GEMM: those, the rotation, attention and three GEMMs.
        assert_eq!([launches[1] - launches[0], launches[2] - launches[0]], [3 * LAYERS, 8 * LAYERS]);
        // Outputs of a block's norms and SwiGLU per token, and the norms' scales.
        let of_block = 8192 * ((2 * HIDDEN + INTERMEDIATE) * precision.dtype().bytes() + 2 * 4);
        let saved = none.arena_bytes - norms.arena_bytes;
        // All blocks' but those of the block whose backward pass runs.
        assert!(saved >= of_block * (LAYERS - 1), "{saved} {of_block}");
        assert!(saved <= of_block * LAYERS, "{saved} {of_block}");
        assert!(blocks.arena_bytes < norms.arena_bytes);
    }
}

#[test]
fn recomputing_blocks_fits_small_cards() {
    const GIB: u64 = 1 << 30;
    let [none, norms, blocks] = qwen_by_recompute(8, 1024, Precision::Bf16).map(|plan| plan.arena_bytes);
    assert!(blocks <= 13 * GIB && norms <= 18 * GIB && none <= 20 * GIB, "{blocks} {norms} {none}");
    let [.., four_times] = qwen_by_recompute(32, 1024, Precision::Bf16).map(|plan| plan.arena_bytes);
    assert!(four_times <= 16 * GIB, "{four_times}");
}

/// One launch normalizes and rotates, forward and backward; recomputation launches the same keys.
#[test]
fn queries_and_keys_that_are_normalized_are_not_rotated_again() {
    let (teacher, student) = (config("qwen3-1.7b"), config("qwen3-0.6b"));
    let plans = Recompute::ALL.map(|recompute| {
        let recipe = Recipe { recompute, ..recipe(8, 1024, Precision::Bf16) };
        taught(&teacher, &student, &recipe, Arch::Sm90a).plan
    });
    for (plan, again) in plans.iter().zip([0, 0, student.depth()]) {
        let launches = || plan.phases.iter().filter(|phase| phase.name != TEACHER).flat_map(Phase::launches);
        let count = |op: &str| launches().filter(|launch| launch.key.text().starts_with(op)).count() as u32;
        assert_eq!(keys(plan), keys(&plans[0]));
        assert_eq!(count("rope."), 0);
        assert_eq!(count("qk_norm.fwd{d=128,keep=false,"), teacher.depth(), "the teacher keeps nothing");
        assert_eq!(count("qk_norm.fwd{d=128,keep=true,"), student.depth() + again);
        assert_eq!(count("qk_norm.bwd{"), student.depth());
    }
    assert!(plans[2].arena_bytes < plans[1].arena_bytes && plans[1].arena_bytes < plans[0].arena_bytes);
}

/// A teacher is optional; an objective that needs one and has none is an error.
#[test]
fn an_objective_that_learns_from_a_teacher_needs_one() {
    let plan = TrainingPlan::new(TrainingRequest::new(&config("qwen2.5-0.5b"), &RECIPE, Arch::Sim));
    assert!(matches!(plan, Err(PlanError::NoTeacher)));
}

#[test]
fn keys_without_a_variant_on_an_architecture_are_named() {
    let all = build_keys(&[config("qwen2.5-0.5b")]);
    let hopper: BuildKeys = all.on(Arch::Sm90a).difference(&all.on(Arch::Sm121)).cloned().collect();
    assert!(!hopper.keys().is_empty() && hopper.lacking(Arch::Sm90a).is_empty());
    assert_eq!(hopper.lacking(Arch::Sm121), hopper.keys());
}

#[test]
fn the_keys_of_a_model_are_what_people_read() {
    let lines: Vec<String> =
        build_keys(&[config("qwen2.5-0.5b")]).on(Arch::Sm121).iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
