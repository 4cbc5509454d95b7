//! A cached teacher: what a run launches without it, and what fills the cache.

use crate::support::*;
use precast_plan::category;
use precast_plan::evaluation::SCORE;

/// Returns launches as far as bits depend on them: key, variant and the block without its addresses. `labels` chooses
/// them.
fn launches(plan: &Plan, phase: &str, labels: impl Fn(&str) -> bool) -> Vec<(String, String, Vec<u8>)> {
    let nodes = plan.phase(phase).nodes.iter().filter(|node| labels(&node.label));
    let launches = nodes.filter_map(Node::launch);
    launches
        .map(|launch| (launch.key.to_string(), launch.pair().unwrap().variant.to_string(), launch.shape()))
        .collect()
}

/// Calls `check` for models, forms of the teacher, precisions and architectures, with the run that has that teacher
/// online.
fn for_each_run(mut check: impl FnMut((&ModelConfig, &Formats), &ModelConfig, &Recipe, &TrainingPlan)) {
    let pairs = [("qwen2.5-1.5b", "qwen2.5-0.5b"), ("qwen3-1.7b", "qwen3-0.6b"), ("smollm2-135m", "smollm2-135m")];
    for (teacher, student) in pairs.map(|(teacher, student)| (first_layers(2, teacher), first_layers(2, student))) {
        let stored = Formats::q4_k_m(&teacher);
        for (formats, precision) in
            [&Formats::dense(), &stored].into_iter().flat_map(|f| Precision::ALL.map(|p| (f, p)))
        {
            let recipe = Recipe { batch: 2, seq_len: 128, packed: true, precision, ..RECIPE };
            for arch in Arch::GPUS.into_iter().chain([Arch::Sim]) {
                let Ok(online) = TrainingPlan::new(
                    TrainingRequest::new(&student, &recipe, arch).taught_by(Some((&teacher, formats))),
                ) else {
                    // No GEMM of such a width is computed in int8.
                    assert_eq!(precision, Precision::Int8);
                    continue;
                };
                check((&teacher, formats), &student, &recipe, &online);
            }
        }
    }
}

/// Launches of the teacher in a step, its head apart: on every architecture, in each form and precision the same keys,
/// variants and blocks fill a cache.
#[test]
fn what_fills_a_cache_is_what_a_step_launches() {
    let mut checked = 0;
    for_each_run(|teacher, _, recipe, online| {
        let arch = online.plan.arch;
        let shape = (recipe.batch, recipe.seq_len);
        let filling = HiddenPlan::new(teacher, shape, (recipe.precision, None), arch).unwrap();
        let of_step = launches(&online.plan, MICRO, |label| label.starts_with("teacher."));
        assert!(of_step == launches(&filling.plan, HiddenPlan::HIDDEN, |_| true), "{arch} {recipe:?}");
        assert!(!of_step.is_empty());
        checked += 1;
    });
    assert!(checked > 30, "{checked}");
}

/// A sweep takes each batch through the launches of the teacher in a step: the same keys, variants and blocks.
#[test]
fn a_sweep_launches_of_each_batch_what_a_step_does() {
    for_each_run(|(teacher, formats), _, recipe, online| {
        let (arch, shape) = (online.plan.arch, (recipe.batch, recipe.seq_len));
        let sweep = SweepPlan::new((teacher, formats), (shape, (3, 2)), (recipe.precision, None), arch).unwrap();
        let dense = (teacher, &Formats::dense());
        let filling = HiddenPlan::new(dense, shape, (recipe.precision, None), arch).unwrap();
        let all = launches(&filling.plan, HiddenPlan::HIDDEN, |_| true);
        let of = |phase: &str| launches(&sweep.plan, phase, |_| true);
        let embed = of(SweepPlan::EMBED);
        // Rows of a table in blocks are dequantized as they are gathered.
        assert!(embed.len() == 3 && (!formats.is_dense() || embed == vec![all[0].clone(); 3]), "{recipe:?}");
        // Two layers, and the norm before the head.
        let layers = &all[1..all.len() - 1];
        for (layer, place) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let layer = of(&sweep.layer_phase(layer, place));
            assert!(layer == vec![layers[..layers.len() / 2].to_vec(); 3].concat(), "{recipe:?}");
        }
        for batch in 0..3 {
            assert!(of(&SweepPlan::norm_phase(batch)) == all[all.len() - 1..], "{recipe:?}");
        }
    });
}

/// Gives every parameter of the model one place; neighboring layers use different buffers.
#[test]
fn a_sweep_has_a_place_for_every_parameter() {
    for name in ["qwen2.5-1.5b", "qwen3-1.7b", "smollm2-135m", "llama-3.2-1b"] {
        let config = config(name);
        let sweep =
            SweepPlan::new((&config, &Formats::dense()), ((1, 64), (2, 1)), (Precision::Bf16, None), Arch::Sm89)
                .unwrap();
        let of_layer = |layer| sweep.layer(layer).map(|(parameter, tensor, _)| (parameter, tensor));
        let layers = (0..config.depth()).flat_map(|layer| of_layer(layer).collect::<Vec<_>>());
        let placed: Vec<(Parameter, Tensor)> = layers.chain([sweep.embedding.clone(), sweep.norm()]).collect();
        let names: BTreeSet<&str> = placed.iter().map(|(parameter, _)| &*parameter.name).collect();
        let expected = Parameters::new(&ModelConfig { tied: true, ..config.clone() }).list;
        assert_eq!(names, expected.iter().map(|parameter| &*parameter.name).collect(), "{name}");
        for (parameter, tensor) in &placed {
            assert!(expected.contains(parameter) && tensor.elems == parameter.elems(), "{name}: {}", parameter.name);
        }
        for (one, next) in of_layer(0).zip(of_layer(1)) {
            assert_ne!(one.1.buffer, next.1.buffer);
        }
        // Two layers, however many the model has.
        let layer: u64 = of_layer(0).map(|(_, tensor)| tensor.bytes()).sum();
        let weights = row(&sweep.plan, category::TEACHER_WEIGHTS).unwrap();
        assert!((2 * layer..2 * layer + (1 << 20)).contains(&weights), "{name}: {weights} {layer}");
    }
}

/// A block more takes its streams and its sequences, and each place is copied whole.
#[test]
fn a_sweep_in_two_places_has_two_blocks_of_streams() {
    let config = config("qwen2.5-1.5b");
    let of = |batches, places| {
        let shape = ((1, 64), (batches, places));
        SweepPlan::new((&config, &Formats::dense()), shape, (Precision::Bf16, None), Arch::Sm89).unwrap()
    };
    let (one, two) = (of(3, 1), of(3, 2));
    let streams = 3 * 64 * u64::from(config.hidden) * 2;
    assert_eq!([one.places.len(), two.places.len()], [1, 2]);
    assert!(two.places.iter().all(|place| place.bytes() == streams) && two.places[0].buffer != two.places[1].buffer);
    assert_eq!(row(&two.plan, category::STREAMS), row(&one.plan, category::STREAMS).map(|bytes| bytes + streams));
    let [more, less] = [&two, &one].map(|it| row(&it.plan, category::INPUTS).unwrap());
    assert_eq!(two.plan.arena_bytes, one.plan.arena_bytes + streams + more - less);
    assert_eq!([two.ids.len(), two.results.len()], [3, 3]);
}

/// Sends a matrix as the file stores it, in blocks, and runs one phase that dequantizes it.
#[test]
fn a_sweep_of_blocks_dequantizes_each_matrix_once_a_layer() {
    let config = config("qwen2.5-1.5b");
    let formats = Formats::q4_k_m(&config);
    let sweep = SweepPlan::new((&config, &formats), ((1, 64), (2, 1)), (Precision::Bf16, None), Arch::Sm89).unwrap();
    for layer in 0..config.depth() {
        let mut matrices = 0;
        for (parameter, tensor, phase) in sweep.layer(layer) {
            let block = formats.of(&parameter.name);
            assert_eq!(tensor.format, block.map_or(Format::Dense(Dtype::Bf16), Format::Block), "{}", parameter.name);
            assert_eq!((phase.is_some(), tensor.elems), (block.is_some(), parameter.elems()));
            let launches = phase.map_or(0, |phase| sweep.plan.phase(&phase).launches().count());
            assert_eq!(launches, usize::from(block.is_some()));
            matrices += launches;
        }
        assert_eq!(matrices, 7);
    }
    assert_eq!(sweep.embedding.1.format, Format::Block(Block::Q6_K));
}

/// All of a step but the teacher is launched as before, and of the teacher's weights the head alone is in memory.
#[test]
fn a_cached_teacher_changes_nothing_but_its_own_launches() {
    for_each_run(|(teacher, formats), student, recipe, online| {
        let cached = taught(Teacher::Cached(teacher), student, recipe, online.plan.arch);
        for phase in online.plan.phases.iter().filter(|phase| ![TEACHER, CERTIFY].contains(&&*phase.name)) {
            let rest = |label: &str| !label.starts_with("teacher.") && !label.contains("dequant");
            let [was, is] = [&online.plan, &cached.plan].map(|plan| launches(plan, &phase.name, rest));
            assert!(was == is, "{} of {recipe:?}", phase.name);
        }
        let head = recipe.precision.dtype().bytes() * u64::from(teacher.vocab) * u64::from(teacher.hidden);
        assert_eq!(row(&cached.plan, category::TEACHER_WEIGHTS), Some(head));
        assert_eq!(row(&cached.plan, category::TEACHER_SCRATCH), None);
        assert!(formats.is_dense() || row(&online.plan, category::TEACHER_SCRATCH).is_some());
        assert!(keys_of(&cached.plan, TEACHER).is_subset(&keys_of(&online.plan, TEACHER)));
    });
}

/// A compact cache is filled by the launches of an exact one, and behind them for each chunk by the logits of a step
/// and the selection.
#[test]
fn a_compact_cache_is_filled_by_the_teacher_and_its_head() {
    for_each_run(|(teacher, formats), student, recipe, online| {
        let (arch, shape) = (online.plan.arch, (recipe.batch, recipe.seq_len));
        let top = TopTokens { vocab: student.vocab, keep: 5, temperature: 2.0 };
        let all = |top| {
            let filling = HiddenPlan::new((teacher, formats), shape, (recipe.precision, top), arch).unwrap();
            launches(&filling.plan, HiddenPlan::HIDDEN, |_| true)
        };
        let (hidden, compact) = (all(None), all(Some(top)));
        assert!(compact.starts_with(&hidden));
        let head = &compact[hidden.len()..];
        let of_step = launches(&online.plan, MICRO, |label| label.starts_with("head.") && label.ends_with(".teacher"));
        let is_top = |(key, ..): &&(String, String, Vec<u8>)| key.starts_with("sample.top{");
        assert_eq!(head.iter().filter(is_top).count(), of_step.len());
        assert!(head.iter().filter(|launch| !is_top(launch)).eq(&of_step), "{recipe:?}");
        let sweep = SweepPlan::new((teacher, formats), (shape, (2, 1)), (recipe.precision, Some(top)), arch).unwrap();
        assert!(launches(&sweep.plan, &SweepPlan::norm_phase(1), |_| true).ends_with(head));
    });
}

/// All of a step but the teacher and the losses is launched as before, and nothing of the teacher's weights is in
/// memory.
#[test]
fn a_compact_teacher_replaces_the_losses_alone() {
    for_each_run(|_, student, recipe, online| {
        let compact = taught(Teacher::Known { keep: 9 }, student, recipe, online.plan.arch);
        let rest = |label: &str| !label.starts_with("teacher.") && !label.contains("dequant");
        let rest = |label: &str| rest(label) && !label.ends_with(".loss") && !label.ends_with(".teacher");
        for phase in online.plan.phases.iter().filter(|phase| ![TEACHER, CERTIFY].contains(&&*phase.name)) {
            let [was, is] = [&online.plan, &compact.plan].map(|plan| launches(plan, &phase.name, rest));
            assert!(was == is, "{} of {recipe:?}", phase.name);
        }
        let losses = launches(&compact.plan, MICRO, |label| label.ends_with(".loss"));
        assert!(!losses.is_empty() && losses.iter().all(|(key, ..)| key.starts_with("head.topk{")));
        assert_eq!(row(&compact.plan, category::TEACHER_WEIGHTS), None);
        assert!(!compact.plan.phases.iter().any(|phase| phase.name == TEACHER));
    });
}

/// A student is measured by a step's launches of the teacher's head, beside those of another form of itself.
#[test]
fn a_student_is_measured_with_the_head_of_a_step() {
    for_each_run(|(teacher, _), student, recipe, online| {
        let (arch, shape, dense) = (online.plan.arch, (recipe.batch, recipe.seq_len), Formats::dense());
        let model = Student { config: student, formats: &dense, adapters: &Adapters::none() };
        let taught = ComparisonPlan::student(model, teacher, shape, recipe.precision, arch).unwrap();
        let of_form = ComparisonPlan::other((student, &dense).into(), shape, recipe.precision, arch).unwrap();
        let of_step = launches(&online.plan, MICRO, |label| label.starts_with("head.") && label.ends_with(".teacher"));
        let of_teacher = launches(&taught.plan, SCORE, |label| label.ends_with(".reference"));
        assert!(!of_step.is_empty() && of_teacher == of_step, "{arch} {recipe:?}");
        let [own, expected] =
            [&taught, &of_form].map(|it| launches(&it.plan, SCORE, |label| !label.ends_with(".reference")));
        assert!(own == expected, "{arch} {recipe:?}");
        let head = recipe.precision.dtype().bytes() * u64::from(teacher.vocab) * u64::from(teacher.hidden);
        assert_eq!(row(&taught.plan, category::TEACHER_WEIGHTS), Some(head));
        let narrow = ModelConfig { vocab: student.vocab - 1, ..teacher.clone() };
        let refused = ComparisonPlan::student(model, &narrow, shape, recipe.precision, arch);
        assert!(matches!(refused, Err(PlanError::TeacherNarrower { .. })));
    });
}

#[test]
fn more_tokens_than_there_are_beside_others_are_not_kept() {
    let (teacher, student) = (config("qwen2.5-1.5b"), ModelConfig { vocab: 100, ..config("qwen2.5-0.5b") });
    let refused = |plan: Result<(), PlanError>| match plan {
        Err(PlanError::Keep { keep, most }) => Some((keep, most)),
        plan => plan.map(|()| None).unwrap(),
    };
    let filling = |vocab, keep| {
        let top = TopTokens { vocab, keep, temperature: 1.0 };
        let shape = ((1, 8), (Precision::Bf16, Some(top)));
        HiddenPlan::new((&teacher, &Formats::dense()), shape.0, shape.1, Arch::Sim).map(drop)
    };
    let training = |keep| {
        let request = TrainingRequest::new(&student, &Recipe { batch: 1, seq_len: 8, ..RECIPE }, Arch::Sim);
        TrainingPlan::new(request.taught_by(Some(Teacher::Known { keep }))).map(drop)
    };
    assert_eq!([filling(100, 99), training(99)].map(refused), [None, None]);
    assert_eq!([filling(100, 100), training(100)].map(refused), [Some((100, 99)); 2]);
    assert_eq!([filling(2000, 1025), filling(2000, 0)].map(refused), [Some((1025, 1024)), Some((0, 1024))]);
    assert!(matches!(filling(teacher.vocab + 1, 1), Err(PlanError::TeacherNarrower { .. })));
}
