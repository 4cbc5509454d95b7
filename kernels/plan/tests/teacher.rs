//! Losses of a teacher alone: accesses and memory.

use crate::support::*;

/// Returns the end of the memory that a plan keeps and that some of its phases touch.
fn end(plan: &Plan, takes: impl Fn(&str) -> bool) -> u64 {
    let phases = plan.phases.iter().filter(|phase| takes(&phase.name));
    let touched = phases.flat_map(|phase| &phase.nodes).flat_map(Node::touches).map(|touch| plan.buffer(touch.buffer));
    let kept = plan.buffers.iter().filter(|buffer| buffer.is_persistent());
    touched.chain(kept).map(|buffer| buffer.offset + buffer.reserved_bytes()).max().unwrap()
}

fn check(training: &TrainingPlan, what: &str) {
    let plan = &training.plan;
    let others = keys_of(plan, MICRO);
    assert!(keys_of(plan, TEACHER).is_subset(&others), "{what}");
    let alone = end(plan, |phase| phase == TEACHER);
    assert!(alone <= end(plan, |phase| phase != TEACHER), "{what}: {alone}");
    let touches = plan.phase(TEACHER).nodes.iter().flat_map(Node::touches).filter(|touch| touch.access.writes());
    let written = touches.map(|touch| plan.buffer(touch.buffer)).filter(|buffer| buffer.is_persistent());
    // Workspaces of GEMMs, and scratch of frozen matrices.
    let works = |name: &&str| *name != "cublas.workspaces" && !name.ends_with(".scratch");
    let written: BTreeSet<&str> = written.map(|buffer| &*buffer.name).filter(works).collect();
    assert_eq!(written.into_iter().collect::<Vec<_>>(), ["metrics"], "{what}");
}

/// It launches kernels of a step, takes no memory beyond a step's, and changes nothing that training reads: the next
/// micro-batch overwrites its losses.
#[test]
fn a_teacher_alone_takes_neither_kernels_nor_memory() {
    let (teacher, student) = (first_layers(3, "qwen2.5-1.5b"), first_layers(3, "qwen2.5-0.5b"));
    let (dense, none) = (Formats::dense(), Adapters::none());
    let adapters = Adapters::uniform(&student, &Target::ALL, 16, 1.0);
    let whole = Student { config: &student, formats: &dense, adapters: &none };
    let adapted = Student { adapters: &adapters, ..whole };
    let shares = [Share::ALONE, Share { replicas: 2, ranks: 2, rank: 1 }];
    let [q4_k_m, int8] = [Formats::q4_k_m(&teacher), Formats::int8()];
    let recipes = Recipe::every(8192).filter(|recipe| recipe.objective.has_teacher());
    let gemms = |recipe: Recipe| Gemm::ALL.map(|gemm| Recipe { gemm, ..recipe });
    let mut checked = 0;
    for recipe in recipes.flat_map(gemms) {
        for (name, formats) in [("dense", &dense), ("stored", &q4_k_m), ("int8", &int8)] {
            let own = Some(Teacher::Model { config: &teacher, formats });
            for (share, (student, teacher)) in shares.into_iter().flat_map(|share| {
                [(whole, own), (adapted, own), (adapted, Some(Teacher::Base))].map(|pair| (share, pair))
            }) {
                let request = TrainingRequest::new(student, &recipe, Arch::Sm90a).taught_by(teacher);
                let Ok(training) = TrainingPlan::new(TrainingRequest { share, ..request }) else {
                    // No int8 GEMMs in fp32, or by cuBLASLt.
                    assert!(name == "int8", "{recipe:?}");
                    continue;
                };
                check(&training, &format!("{name} {recipe:?} {share:?}"));
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked}");
    let stored = Formats::uniform(&student, Block::Q8_0);
    let base = Student { formats: &stored, ..adapted };
    let recipe = Recipe::every(512).find(|it| it.objective.has_teacher() && it.precision == Precision::Bf16).unwrap();
    check(&taught(Teacher::Base, base, &recipe, Arch::Sm90a), "a stored base");
    // Without a teacher.
    let recipe = Recipe::every(64).find(|it| !it.objective.has_teacher() && it.recompute == Recompute::None).unwrap();
    assert!(alone(&student, &recipe, Arch::Sim).plan.phases.iter().all(|phase| phase.name != TEACHER));
}

/// Of several teachers each has phases of its own, which launch what they launch where it is alone; all of them have
/// their weights in memory, and share activations.
#[test]
fn a_teacher_among_several_is_lowered_as_alone() {
    let (teacher, student) = (first_layers(3, "qwen2.5-1.5b"), first_layers(2, "qwen2.5-0.5b"));
    let (dense, int8, none) = (Formats::dense(), Formats::int8(), Adapters::none());
    let adapters = Adapters::uniform(&student, &Target::ALL, 16, 1.0);
    let whole = Student { config: &student, formats: &dense, adapters: &none };
    let [own, rounded] = [&dense, &int8].map(|formats| Teacher::Model { config: &teacher, formats });
    let cached = [Teacher::Cached(&teacher), Teacher::Known { keep: 7 }];
    let several = [own, rounded, Teacher::Student, cached[0], cached[1], Teacher::Base];
    let shares = [Share::ALONE, Share { replicas: 2, ranks: 2, rank: 1 }];
    let recipes = Recipe::every(2048).filter(|recipe| recipe.objective.has_teacher());
    let mut checked = 0;
    for recipe in recipes.filter(|recipe| recipe.precision != Precision::Fp32) {
        for (share, student) in
            shares.into_iter().flat_map(|share| [whole, Student { adapters: &adapters, ..whole }].map(|of| (share, of)))
        {
            let teachers = &several[..if student.adapters.is_empty() { 5 } else { 6 }];
            let lower = |teachers: &[Teacher<'_>]| {
                let request = TrainingRequest::new(student, &recipe, Arch::Sm90a).taught_by(teachers.iter().copied());
                TrainingPlan::new(TrainingRequest { share, ..request }).unwrap()
            };
            let all = lower(teachers);
            for (number, teacher) in teachers.iter().enumerate() {
                let alone = lower(std::slice::from_ref(teacher));
                for phase in [MICRO, LAST, TEACHER, GUARD] {
                    let launches = |plan: &Plan, phase: &str| {
                        let phase = plan.phases.iter().find(|one| one.name == phase);
                        let launches = phase.into_iter().flat_map(|phase| phase.nodes.iter().filter_map(Node::launch));
                        launches.map(|launch| (launch.pair().unwrap().to_string(), launch.shape())).collect::<Vec<_>>()
                    };
                    let [is, expected] = [(&all, of_teacher(phase, number)), (&alone, phase.to_owned())]
                        .map(|(training, phase)| launches(&training.plan, &phase));
                    assert!(is == expected, "{phase} of {number}: {recipe:?}");
                    checked += usize::from(!is.is_empty());
                }
                assert_eq!(all.certificates[number].is_some(), alone.certificates[0].is_some(), "{number}: {recipe:?}");
            }
        }
    }
    assert!(checked > 500, "{checked}");
}
