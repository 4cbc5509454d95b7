//! Decoding in the memory of training.

use precast_kernels::abi::attention_decode_params;
use precast_plan::decoding::{MOST_SLOTS, decode_phase, prefill_phase};
use precast_plan::{category, human_bytes};

use crate::support::*;

const STEP: Recipe = Recipe { batch: 8, seq_len: 1024, ..RECIPE };

/// Plans a step of 8 sequences of 1024 tokens: alone, with decoding into 512 slots, and training on what it decodes.
fn plans(arch: Arch) -> [TrainingPlan; 3] {
    let (teacher, student) = (config("qwen2.5-1.5b"), config("qwen2.5-0.5b"));
    let request = TrainingRequest::new(&student, &STEP, arch).taught_by(Some(&teacher));
    let slots = Slots { count: MOST_SLOTS, seq_len: 1024 };
    let decodes = request.clone().decoding(DecodeRequest { slots, sampling: Sampling::LIKELIEST });
    [request, decodes.clone(), decodes.on_policy()].map(|request| TrainingPlan::new(request).unwrap())
}

#[test]
fn decoding_takes_the_memory_that_activations_leave() {
    for arch in [Arch::Sm89, Arch::Sm90a] {
        let [alone, both, _] = plans(arch).map(|training| training.plan.arena_bytes);
        assert!(both * 100 <= alone * 102, "{arch}: {} against {}", human_bytes(both), human_bytes(alone));
    }
}

#[test]
fn a_stage_adds_phases_and_moves_no_other_buffer() {
    let [alone, both, _] = plans(Arch::Sm90a);
    let (phases, stage) = both.plan.phases.split_at(alone.plan.phases.len());
    assert_eq!(phases, alone.plan.phases);
    let names: Vec<&str> = stage.iter().map(|phase| &*phase.name).collect();
    let phases = [512, 2048].map(prefill_phase).into_iter().chain([64, 128, 256, 512].map(decode_phase));
    assert_eq!(names, phases.collect::<Vec<_>>());
    let decodes = both.decoding.unwrap();
    assert_eq!(both.plan.buffer(decodes.ids.buffer).lifetime, Lifetime::Stage);
    let table = MemoryTable::of(&both.plan);
    assert!(
        table.shared.iter().any(|row| row.category == category::KEYS_AND_VALUES && row.bytes == 6 << 30),
        "{table}"
    );
    assert_eq!(MemoryTable::of(&alone.plan).shared, []);
}

/// In prompts the launch in front stores keys that rows of the same launch read.
#[test]
fn only_steps_read_keys_before_the_launch_in_front_has_ended() {
    for plan in plans(Arch::Sm90a).map(|training| training.plan) {
        for (phase, launch) in plan.phases.iter().flat_map(|phase| phase.launches().map(move |launch| (phase, launch)))
        {
            if launch.key.op() == "attention.decode" {
                let params: attention_decode_params = bytemuck::pod_read_unaligned(&launch.params);
                assert_eq!(params.is_step == 1, phase.name.starts_with("decode."), "{}", phase.name);
            }
        }
    }
}

/// Rows of any length are micro-batches by a step's kernels, and take no memory beyond full ones but for their list.
#[test]
fn packed_rows_take_a_steps_kernels_and_memory() {
    let [_, both, training] = plans(Arch::Sm90a);
    let whole = keys_of(&training.plan, MICRO);
    assert!(whole.iter().any(|key| key.starts_with("sample.score")), "{whole:?}");
    let packed = Recipe { packed: true, ..STEP };
    assert_eq!((packed.tokens(), packed.shape().seq_len), (STEP.tokens(), STEP.seq_len));
    assert!(packed.shape().sequences > STEP.shape().sequences);
    let [alone, all] = [&both, &training].map(|training| training.plan.arena_bytes);
    assert!(all * 100 <= alone * 101, "{} against {}", human_bytes(all), human_bytes(alone));
}
