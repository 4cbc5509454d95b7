//! Plans with GEMMs by cuBLASLt.

use precast_kernels::Addend;
use precast_plan::category;

use crate::support::*;

const ARCHS: [Arch; 4] = [Arch::Sim, Arch::Sm89, Arch::Sm90a, Arch::Sm90Portable];

fn model() -> ModelConfig {
    first_layers(2, "qwen2.5-0.5b")
}

/// Plans one training step by the bundle's kernels, and by cuBLASLt.
fn plans(recipe: &Recipe, arch: Arch) -> [Plan; 2] {
    let model = model();
    let teacher = recipe.objective.has_teacher().then_some(&model);
    let request = |gemm| TrainingRequest::new(&model, &Recipe { gemm, ..*recipe }, arch).taught_by(teacher);
    Gemm::ALL.map(|gemm| TrainingPlan::new(request(gemm)).unwrap().plan)
}

/// Returns the library's GEMM of a launch.
fn cublas(launch: &Launch) -> Option<Cublas> {
    if let Executor::Cublas(cublas) = launch.by { Some(cublas) } else { None }
}

fn is_gemm(pair: &KeyVariant) -> bool {
    is_dense_gemm(&pair.key)
}

/// False for int8 GEMMs, which are always the bundle's.
fn is_dense_gemm(key: &Key) -> bool {
    key.op().starts_with("gemm.") && !key.text().contains("w=i8")
}

#[test]
fn the_keys_of_gemms_drop_out_and_all_others_stay() {
    for arch in ARCHS {
        let built = build_keys(&[model()]).on(arch);
        for recipe in Recipe::every(64) {
            let [bundle, library] = plans(&recipe, arch).map(|plan| keys(&plan));
            let rest: BTreeSet<KeyVariant> = bundle.iter().filter(|pair| !is_gemm(pair)).cloned().collect();
            // A student's SwiGLU is always a launch of its own.
            assert_eq!(library, rest, "{arch}");
            assert!(library.is_subset(&built) && library.len() < bundle.len(), "{arch}");
        }
        for precision in Precision::ALL {
            let lower = |gemm| EvaluationPlan::with_gemm((&model()).into(), (2, 64), (precision, gemm), arch).unwrap();
            let [bundle, library] = Gemm::ALL.map(|gemm| keys(&lower(gemm).plan));
            assert!(bundle.iter().any(|pair| pair.key.op() == "gemm.swiglu"));
            let added: Vec<&str> = library.difference(&bundle).map(|pair| pair.key.op()).collect();
            assert_eq!(added, ["swiglu.fwd"], "{arch}");
            assert!(library.is_subset(&built) && !library.iter().any(is_gemm), "{arch}");
        }
    }
}

/// Returns the part of a launch that does not depend on its executor and addresses.
fn computes(node: &Node) -> (String, String) {
    let Some(launch) = node.launch() else { panic!("{} is no launch", node.label) };
    let problem = launch.key.kernel().problem(&launch.params).unwrap_or_default();
    (node.label.clone(), format!("{} {problem}", launch.key))
}

#[test]
fn a_step_is_the_same_launches_but_for_swiglu() {
    for arch in ARCHS {
        for recipe in Recipe::every(64) {
            let [bundle, library] = plans(&recipe, arch);
            for (before, after) in bundle.phases.iter().zip(&library.phases) {
                let mut nodes = after.nodes.iter();
                // The bundle's GEMMs that divide K count in semaphores.
                for node in before.nodes.iter().filter(|node| node.label != "clear.semaphores") {
                    let (label, what) = computes(node);
                    let (own_label, own) = computes(nodes.next().unwrap());
                    assert_eq!(label, own_label);
                    if !what.starts_with("gemm.swiglu") || what.contains("w=i8") {
                        assert_eq!(what, own, "{label}");
                        continue;
                    }
                    assert!(own.starts_with("gemm.fwd{") && own.contains("residual=false"), "{own}");
                    let (_, gate) = computes(nodes.next().unwrap());
                    assert!(gate.starts_with("swiglu.fwd"), "{gate}");
                }
                assert!(nodes.next().is_none(), "{}", after.name);
            }
            assert!(bundle.cublas_gemms().next().is_none());
            assert!(library.launches().all(|launch| launch.pair().is_none() == is_dense_gemm(&launch.key)));
        }
    }
}

#[test]
fn a_library_works_in_planned_memory_and_gemms_take_it_in_turn() {
    let recipe = Recipe::every(64).next().unwrap();
    let [bundle, library] = plans(&recipe, Arch::Sm90a);
    let micro = library.phase(MICRO);
    let used: Vec<Cublas> = micro.launches().filter_map(cublas).collect();
    assert!(used.len() > 20);
    assert!(used.windows(2).all(|pair| pair[0].workspace != pair[1].workspace));
    let slots: BTreeSet<u64> = used.iter().map(|one| one.workspace.offset).collect();
    assert_eq!(slots.len(), 2);
    // Two GEMMs with one workspace wait for each other.
    let (waited, mut last) = (waited_for(&micro.nodes), BTreeMap::new());
    for (index, node) in micro.nodes.iter().enumerate() {
        let Some(Cublas { workspace, .. }) = node.launch().and_then(cublas) else { continue };
        let touches = node.touches();
        let scratch: Vec<_> = touches.iter().filter(|touch| touch.access == Access::Scratch).collect();
        let places: Vec<_> = scratch.iter().map(|touch| (touch.buffer, touch.offset, touch.bytes)).collect();
        assert_eq!(places, [(workspace.buffer, workspace.offset, 32 << 20)], "{}", node.label);
        if let Some(before) = last.insert(workspace.offset, index) {
            assert!(waited[index][before], "{} does not wait", node.label);
        }
    }
    assert_eq!(row(&library, category::CUBLAS_WORKSPACES), Some(64 << 20));
    assert_eq!(row(&library, Category::CUBLAS), Some(library.device_bytes() - library.arena_bytes));
    assert_eq!(MemoryTable::of(&library).total_bytes, library.device_bytes());
    assert_eq!([category::CUBLAS_WORKSPACES, Category::CUBLAS].map(|category| row(&bundle, category)), [None, None]);
    assert_eq!(bundle.device_bytes(), bundle.arena_bytes);
}

#[test]
fn the_first_gradient_of_a_micro_batch_reads_whether_to_add() {
    let recipe = Recipe::every(64).next().unwrap();
    let plan = alone(&model(), &Recipe { gemm: Gemm::Cublas, ..recipe }, Arch::Sm90a);
    let factors = plan.inputs.factors;
    assert_eq!((factors.elems, factors.offset % 16), (2, 0));
    assert!(factors.offset >= plan.inputs.micro.offset + plan.inputs.micro.bytes());
    assert!(factors.offset + factors.bytes() <= plan.inputs.all.offset + plan.inputs.all.bytes());
    for gemm in plan.plan.cublas_gemms() {
        let addend = gemm.key.kernel().blas_gemm(&gemm.params).unwrap().addend;
        let reads = cublas(gemm).unwrap().factors;
        assert_eq!(reads, matches!(addend, Addend::Accumulated(_)).then_some(factors), "{}", gemm.key);
        assert_eq!(gemm.key.op() == "gemm.wgrad", reads.is_some());
    }
}
