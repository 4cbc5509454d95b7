//! Decoding in the memory of training.

use std::collections::BTreeSet;

use precast_kernels::Arch;
use precast_plan::decoding::{MOST_SLOTS, PREFILL, decode_phase};
use precast_plan::memory::human_bytes;
use precast_plan::training::MICRO;
use precast_plan::{
    Category, DecodeRequest, Lifetime, MemoryTable, ModelConfig, Precision, Recipe, Recompute, Sampling,
    SequenceLength, Slots, TrainingPlan, TrainingRequest,
};

/// Returns the recipe of a step of 8 sequences of 1024 tokens in bf16.
fn recipe() -> Recipe {
    let mut recipes =
        Recipe::every(1024).filter(|recipe| recipe.objective.has_teacher() && recipe.recompute == Recompute::None);
    Recipe { batch: 8, ..recipes.find(|recipe| recipe.precision == Precision::Bf16).unwrap() }
}

/// Plans a step of 8 sequences of 1024 tokens, with and without decoding into 512 slots.
fn plans(arch: Arch) -> [TrainingPlan; 2] {
    let config = |json: &str| ModelConfig::from_json(json).unwrap();
    let teacher = config(include_str!("../../../aot/models/qwen2.5-1.5b.json"));
    let student = config(include_str!("../../../aot/models/qwen2.5-0.5b.json"));
    let recipe = recipe();
    let request = TrainingRequest::new(&student, &recipe, arch).taught_by(Some(&teacher));
    let slots = Slots { count: MOST_SLOTS, seq_len: 1024 };
    let decode = DecodeRequest { slots, sampling: Sampling::LIKELIEST };
    [request, request.decoding(decode)].map(|request| TrainingPlan::new(request).unwrap())
}

#[test]
fn decoding_takes_the_memory_that_activations_leave() {
    for arch in [Arch::Sm89, Arch::Sm90a] {
        let [alone, both] = plans(arch).map(|training| training.plan.arena_bytes);
        assert!(both * 100 <= alone * 102, "{arch}: {} against {}", human_bytes(both), human_bytes(alone));
    }
}

#[test]
fn a_stage_adds_phases_and_moves_no_other_buffer() {
    let [alone, both] = plans(Arch::Sm90a);
    let (phases, stage) = both.plan.phases.split_at(alone.plan.phases.len());
    assert_eq!(phases, alone.plan.phases);
    let names: Vec<&str> = stage.iter().map(|phase| &*phase.name).collect();
    assert_eq!(names, [PREFILL, &decode_phase(64), &decode_phase(128), &decode_phase(256), &decode_phase(512)]);
    let decodes = both.decoding.unwrap();
    assert_eq!(both.plan.buffer(decodes.ids.buffer).lifetime, Lifetime::Stage);
    let table = MemoryTable::of(&both.plan);
    assert!(table.shared.iter().any(|row| row.category == Category::KeysAndValues && row.bytes == 6 << 30), "{table}");
    assert_eq!(MemoryTable::of(&alone.plan).shared, []);
}

/// All lengths compute as many tokens, by a step's kernels, and shorter ones take no memory beyond the longest's but for attention's.
#[test]
fn shorter_sequences_are_micro_batches_of_as_many_tokens() {
    let [.., both] = plans(Arch::Sm90a);
    let config = |json: &str| ModelConfig::from_json(json).unwrap();
    let teacher = config(include_str!("../../../aot/models/qwen2.5-1.5b.json"));
    let student = config(include_str!("../../../aot/models/qwen2.5-0.5b.json"));
    let recipe = recipe();
    let slots = Slots { count: MOST_SLOTS, seq_len: 1024 };
    let decode = DecodeRequest { slots, sampling: Sampling::LIKELIEST };
    let request = TrainingRequest::new(&student, &recipe, Arch::Sm90a).taught_by(Some(&teacher));
    let training = TrainingPlan::new(request.decoding(decode).on_policy()).unwrap();
    let keys = |phase: &str| -> BTreeSet<String> {
        training.plan.phase(phase).launches().map(|launch| launch.key.to_string()).collect()
    };
    let whole = keys(MICRO);
    assert!(whole.iter().any(|key| key.starts_with("sample.score")), "{whole:?}");
    for length in [SequenceLength::Half, SequenceLength::Quarter] {
        assert_eq!(keys(&length.phase(MICRO)), whole, "{length:?}");
    }
    let [alone, all] = [&both, &training].map(|training| training.plan.arena_bytes);
    assert!(all * 100 <= alone * 101, "{} against {}", human_bytes(all), human_bytes(alone));
    let odd = Recipe { seq_len: 6, ..recipe };
    assert_eq!(SequenceLength::of(&odd).collect::<Vec<_>>(), [SequenceLength::Whole, SequenceLength::Half]);
}
