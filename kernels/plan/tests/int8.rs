//! An 8-bit teacher: its plan's memory, launches, and quantization.

use crate::support::*;
use precast_plan::category;

fn recipe(batch: u32, seq_len: u32, recompute: Recompute) -> Recipe {
    Recipe { batch, seq_len, recompute, ..RECIPE }
}

fn lower(teacher: &ModelConfig, student: &ModelConfig, recipe: &Recipe, arch: Arch) -> TrainingPlan {
    taught((teacher, &Formats::int8()), student, recipe, arch)
}

#[test]
fn a_7b_in_int8_fits_a_card_of_24_gib() {
    let (teacher, student) = (config("qwen2.5-7b"), config("qwen2.5-0.5b"));
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    for (batch, recompute, most_gib) in [(4, Recompute::None, 22.0), (8, Recompute::Norms, 23.2)] {
        let plan = lower(&teacher, &student, &recipe(batch, 1024, recompute), Arch::Sm89);
        let weights = row(&plan.plan, category::TEACHER_WEIGHTS).unwrap();
        assert!(weights <= 8_800_000_000, "{weights}");
        assert!(gib(plan.plan.arena_bytes) <= most_gib, "{}", gib(plan.plan.arena_bytes));
        assert!(plan.certificates[0].is_some(), "there is room to measure what it costs");
    }
}

/// One scale per row, and nothing else beside the values.
#[test]
fn weights_are_a_byte_an_element_and_a_scale_a_row() {
    let model = config("qwen2.5-1.5b");
    let shape = (1, 64);
    let plan =
        |formats: &Formats| EvaluationPlan::with_formats((&model, formats), shape, Precision::Bf16, Arch::Sim).unwrap();
    let (dense, int8) = (plan(&Formats::dense()), plan(&Formats::int8()));
    let of_layer = |width: u64| {
        let (hidden, heads, intermediate) = (u64::from(model.hidden), u64::from(model.qkv_width()), 8960u64);
        match width {
            0 => hidden * (heads + hidden + 3 * intermediate),
            _ => heads + hidden + 2 * intermediate + hidden,
        }
    };
    let layers = u64::from(model.depth());
    let of = |plan: &EvaluationPlan| row(&plan.plan, category::STUDENT_WEIGHTS).unwrap();
    let saved = of(&dense) - of(&int8);
    let expected = layers * (of_layer(0) - 4 * of_layer(1));
    assert!(saved.abs_diff(expected) <= 1024, "{saved} {expected}");
}

/// Every GEMM of the teacher but the head, and none of the student.
#[test]
fn the_gemms_of_the_teacher_are_of_8_bits() {
    let (teacher, student) = (config("qwen2.5-1.5b"), config("qwen2.5-0.5b"));
    let plan = lower(&teacher, &student, &recipe(1, 128, Recompute::None), Arch::Sm90a);
    let of_layer = |key| count(&plan.plan, MICRO, "teacher.", key) / teacher.depth();
    assert_eq!(["gemm.", "gemm.swiglu", "w=i8,x=i8"].map(of_layer), [4, 1, 4]);
    // Norms quantize their own outputs; attention's and SwiGLU's take a pass of their own.
    assert_eq!(["rmsnorm.fwd{h=1536,out=i8", "int8.quantize"].map(of_layer), [2, 2]);
    assert_eq!(["student.", "head."].map(|of| count(&plan.plan, MICRO, of, "i8")), [0, 0]);
    assert!(count(&plan.plan, MICRO, "head.", "gemm.fwd") > 0);
}

/// Every matrix is sent once, quantized once, and dense nowhere when the first step begins.
#[test]
fn each_layer_is_sent_and_quantized_by_itself() {
    let (teacher, student) = (config("qwen3-1.7b"), config("qwen3-0.6b"));
    let plan = lower(&teacher, &student, &recipe(1, 128, Recompute::None), Arch::Sm90a);
    let resident = plan.teachers[0].model().unwrap();
    assert_eq!(resident.staged.len() as u32, teacher.depth());
    let sent = resident.staged.iter().flat_map(|staged| &staged.parts).map(|(parameter, _)| parameter);
    let resting = resident.weights.list().map(|(parameter, _)| parameter);
    let mut all: Vec<_> = sent.chain(resting).map(|one| one.name.clone()).collect();
    let mut expected: Vec<_> = resident.weights.parameters.list.iter().map(|one| one.name.clone()).collect();
    all.sort_unstable();
    expected.sort_unstable();
    assert_eq!(all, expected);
    let end = |buffer: &Buffer| buffer.offset + buffer.bytes();
    for staged in &resident.staged {
        let phase = plan.plan.phase(&staged.quantize);
        assert_eq!(phase.nodes.len(), 4);
        let written = phase.nodes.iter().flat_map(|node| node.touches()).filter(|touch| touch.access.writes());
        for touch in written {
            let buffer = plan.plan.buffer(touch.buffer);
            assert!(buffer.is_persistent() && buffer.category == category::TEACHER_WEIGHTS);
        }
        // In memory that is used later, and not yet.
        let buffer = plan.plan.buffer(staged.parts[0].1.buffer);
        let kept = [category::TEACHER_WEIGHTS];
        let there = plan.plan.buffers.iter().filter(|other| other.is_persistent() && kept.contains(&other.category));
        assert!(there.clone().all(|other| end(other) <= buffer.offset || end(buffer) <= other.offset));
        let student = plan.student.weights.all.tensor.buffer;
        assert!(buffer.offset < end(plan.plan.buffer(student)), "it takes no memory of its own");
    }
}

/// Measuring never makes a plan larger: without room, it is left out.
#[test]
fn a_plan_does_not_grow_to_be_certified() {
    let large = config("qwen2.5-1.5b");
    let tiny = ModelConfig { hidden: 64, intermediate: 64, heads: 1, kv_heads: 1, head_dim: 16, ..large.cut(1) };
    let tiny = ModelConfig { vocab: 128, ..tiny };
    let large = ModelConfig { vocab: 128, ..large };
    let recipe = recipe(1, 16, Recompute::None);
    let int8 = lower(&large, &tiny, &recipe, Arch::Sim);
    assert!(int8.certificates == [None] && !int8.plan.phases.iter().any(|phase| phase.name.starts_with("certify")));
    assert!(int8.teachers[0].model().unwrap().staged.iter().all(|staged| staged.certify.is_none()));
    let roomy = lower(&tiny, &large, &recipe, Arch::Sim);
    assert!(roomy.certificates[0].is_some() && roomy.plan.phases.iter().any(|phase| phase.name == "certify"));
}
