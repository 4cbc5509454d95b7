//! A teacher as stored: its plan's memory, and equality of its GEMMs with a dense teacher's.

use crate::support::*;

fn models() -> [ModelConfig; 3] {
    ["qwen2.5-7b", "qwen2.5-0.5b", "smollm2-135m"].map(config)
}

fn recipe(batch: u32, seq_len: u32, precision: Precision) -> Recipe {
    Recipe { batch, seq_len, precision, ..RECIPE }
}

fn lower(teacher: &ModelConfig, formats: &Formats, student: &ModelConfig, recipe: &Recipe, arch: Arch) -> Plan {
    taught((teacher, formats), student, recipe, arch).plan
}

fn is_dequant(launch: &Launch) -> bool {
    launch.key.op() == "dequant"
}

/// Returns the launches of a plan but dequantization: key, variant and the block without its addresses. The gather of
/// embeddings differs only in its key.
fn gemms(plan: &Plan) -> Vec<(String, String, Vec<u8>)> {
    let key = |key: &Key| {
        let text = key.to_string();
        if text.starts_with("embedding.fwd") { "embedding.fwd".to_owned() } else { text }
    };
    let launches = plan.launches().filter(|launch| !is_dequant(launch));
    launches.map(|launch| (key(&launch.key), launch.pair().unwrap().variant.to_string(), launch.shape())).collect()
}

/// Bits could depend on variant, shape and order of sums: all are equal, on every architecture.
#[test]
fn but_for_dequantization_a_stored_teacher_is_a_dense_one() {
    let [large, student, small] = models();
    for (teacher, student) in [(&large, &student), (&small, &small)] {
        let formats = Formats::q4_k_m(teacher);
        for precision in Precision::ALL {
            let recipe = recipe(2, 128, precision);
            for arch in Arch::GPUS.into_iter().chain([Arch::Sim]) {
                let [dense, stored] =
                    [&Formats::dense(), &formats].map(|formats| lower(teacher, formats, student, &recipe, arch));
                assert!(gemms(&dense) == gemms(&stored), "{arch} {precision}");
                assert!(stored.launches().any(is_dequant) && !dense.launches().any(is_dequant));
            }
        }
    }
}

#[test]
fn without_blocks_a_stored_teacher_is_the_dense_one() {
    let [_, teacher, student] = models();
    let (teacher, student) = (ModelConfig { vocab: student.vocab, ..teacher }, student);
    let narrow = ModelConfig { hidden: 8, intermediate: 8, head_dim: 16, heads: 1, ..student.clone() };
    let none = Formats::uniform(&narrow, Block::Q4_K);
    assert!(none.is_dense());
    let dense = taught(&teacher, &student, &RECIPE, Arch::Sm90a);
    assert_eq!(dense, taught((&teacher, &none), &student, &RECIPE, Arch::Sm90a));
}

/// Each matrix of a layer may be dequantized while the previous GEMM runs: neither an edge nor shared memory orders
/// the two.
#[test]
fn a_matrix_may_be_dequantized_while_the_gemm_before_it_runs() {
    let [teacher, student, _] = models();
    let plan = lower(&teacher, &Formats::q4_k_m(&teacher), &student, &recipe(8, 1024, Precision::Bf16), Arch::Sm90a);
    let nodes = &plan.phase(MICRO).nodes;
    let waited = waited_for(nodes);
    let dequant = |layer: u32, gemm: &str| {
        let prefix = format!("teacher.layers.{layer}.{gemm}.dequant.");
        let found: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].label.starts_with(&prefix)).collect();
        assert!(!found.is_empty(), "{prefix}");
        found
    };
    let gemm = |layer: u32, name: &str| {
        let label = format!("teacher.layers.{layer}.{name}");
        nodes.iter().position(|node| node.label == label).unwrap_or_else(|| panic!("{label}"))
    };
    for layer in 1..teacher.depth() {
        let order = [(layer - 1, "down"), (layer, "qkv"), (layer, "o"), (layer, "gate_up"), (layer, "down")];
        for pair in order.windows(2) {
            let ((before, before_name), (of, name)) = (pair[0], pair[1]);
            for one in dequant(of, name) {
                assert!(!waited[one][gemm(before, before_name)], "{}", nodes[one].label);
                assert!(waited[gemm(of, name)][one], "{}", nodes[one].label);
            }
        }
    }
    // The part of the head in neither slot waits for nothing.
    let head: Vec<&Node> = nodes.iter().filter(|node| node.label.starts_with("head.teacher.dequant.")).collect();
    assert!(head.len() == 3 && head[2].dependencies.is_empty(), "{head:?}");
}

/// Two launches if formats agree and parts are adjacent, else one per format.
#[test]
fn parts_stored_alike_are_dequantized_by_one_launch() {
    let [teacher, _, _] = models();
    let formats = Formats::q4_k_m(&teacher);
    let plan = EvaluationPlan::with_formats((&teacher, &formats), (1, 64), Precision::Bf16, Arch::Sm90a).unwrap().plan;
    let count = |prefix: &str| plan.phases[0].nodes.iter().filter(|node| node.label.starts_with(prefix)).count();
    assert_eq!(count("model.layers.0.gate_up.dequant."), 1);
    // v in Q6_K in the first layers, in Q4_K like q and k later.
    assert_eq!([count("model.layers.0.qkv.dequant."), count("model.layers.3.qkv.dequant.")], [2, 1]);
}

/// q in one format, k in another and v dense, which no converter writes: one GEMM still computes all three.
#[test]
fn a_gemm_with_a_dense_part_is_dense() {
    let [_, teacher, _] = models();
    let all = Formats::uniform(&teacher, Block::Q8_0);
    let but = |name: &str| -> Formats {
        all.iter().filter(|(one, _)| *one != name).map(|(name, block)| (name.to_owned(), block)).collect()
    };
    let formats = but("model.layers.0.self_attn.v_proj.weight");
    let plan = EvaluationPlan::with_formats((&teacher, &formats), (1, 64), Precision::Fp32, Arch::Sim).unwrap().plan;
    let found = |prefix: &str| plan.phases[0].nodes.iter().any(|node| node.label.starts_with(prefix));
    assert!(!found("model.layers.0.qkv.dequant.") && found("model.layers.1.qkv.dequant."));
    assert!(found("model.layers.0.o.dequant."));
}

#[test]
fn a_stored_teacher_takes_one_more_kernel_and_another_gather() {
    let [_, _, model] = models();
    for (precision, x) in [(Precision::Fp32, "f32"), (Precision::Bf16, "bf16")] {
        let recipe = recipe(1, 64, precision);
        let of = |formats: &Formats| keys(&lower(&model, formats, &model, &recipe, Arch::Sm121));
        let (dense, stored) = (of(&Formats::dense()), of(&Formats::uniform(&model, Block::Q4_1)));
        let more: Vec<String> = stored.difference(&dense).map(|pair| pair.key.to_string()).collect();
        assert_eq!(more, [format!("dequant{{w=Q4_1,x={x}}}"), format!("embedding.fwd{{h=576,w=Q4_1,x={x}}}")]);
    }
}
