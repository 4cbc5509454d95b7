//! The one list holds: whatever a run launches, the build has enumerated.

use std::collections::BTreeSet;

use precast_kernels::{Arch, Key};
use precast_plan::{Architecture, EvaluationPlan, ModelConfig, Precision, Recipe, TrainingPlan, build_keys, keys};
use proptest::prelude::*;

prop_compose! {
    fn model()(
        qwen2 in any::<bool>(),
        hidden in 1u32..40,
        intermediate in 1u32..300,
        layers in 1u32..5,
        kv_heads in 1u32..4,
        group in 1u32..4,
        head_dim in 1u32..9,
        vocab in 2u32..3000,
        tied in any::<bool>(),
        bias in any::<bool>(),
        mlp_bias in any::<bool>(),
    ) -> ModelConfig {
        ModelConfig {
            architecture: if qwen2 { Architecture::Qwen2 } else { Architecture::Llama },
            hidden: hidden * 8,
            intermediate,
            layers,
            heads: kv_heads * group,
            kv_heads,
            head_dim: head_dim * 16,
            vocab,
            max_positions: 4096,
            rms_norm_eps: 1e-6,
            rope_theta: 1e4,
            tied,
            qkv_bias: qwen2 || bias,
            o_bias: !qwen2 && bias,
            mlp_bias: !qwen2 && mlp_bias,
        }
    }
}

fn recipe(batch: u32, seq_len: u32, precision: Precision) -> Recipe {
    Recipe { batch, seq_len, precision, alpha: 0.5, temperature: 2.0, weight_decay: 0.01, clip: 1.0, recompute: false }
}

fn archs() -> impl Strategy<Value = Arch> {
    prop_oneof![Just(Arch::Sm89), Just(Arch::Sm90a), Just(Arch::Sm121), Just(Arch::Sim)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_plan_is_covered_by_the_build(
        mut teacher in model(),
        student in model(),
        batch in 1u32..40,
        seq_len in 1u32..700,
        bf16 in any::<bool>(),
        recompute in any::<bool>(),
        arch in archs(),
    ) {
        teacher.vocab = teacher.vocab.max(student.vocab);
        let precision = if bf16 { Precision::Bf16 } else { Precision::Fp32 };
        let built = build_keys(&[teacher.clone(), student.clone()], arch);
        let recipe = Recipe { recompute, ..recipe(batch, seq_len, precision) };
        let training = TrainingPlan::new(&teacher, &student, &recipe, arch).unwrap();
        let missing: BTreeSet<_> = keys(&training.plan).difference(&built).cloned().collect();
        prop_assert!(missing.is_empty(), "{missing:?}");
        let evaluation = EvaluationPlan::new(&teacher, (batch, seq_len), precision, arch).unwrap();
        let missing: BTreeSet<_> = keys(&evaluation.plan).difference(&built).cloned().collect();
        prop_assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn keys_parse_back_and_their_entries_are_unique(model in model(), arch in archs()) {
        let built = build_keys(&[model], arch);
        let mut entries = BTreeSet::new();
        for pair in &built {
            let parsed = Key::parse(pair.key.text()).unwrap();
            prop_assert_eq!(&parsed, &pair.key);
            prop_assert!(pair.key.kernel().variants(arch).contains(&pair.variant));
            prop_assert!(entries.insert(pair.key.kernel().entry(pair.variant, arch)), "{} is not unique", pair);
        }
    }

    #[test]
    fn no_two_live_buffers_share_memory(
        mut teacher in model(),
        student in model(),
        batch in 1u32..5,
        seq_len in 1u32..50,
        recompute in any::<bool>(),
    ) {
        teacher.vocab = teacher.vocab.max(student.vocab);
        let recipe = Recipe { recompute, ..recipe(batch, seq_len, Precision::Bf16) };
        let plan = TrainingPlan::new(&teacher, &student, &recipe, Arch::Sim).unwrap().plan;
        // Replay the plan with each byte range owned by whoever wrote it last: every read must find its own.
        for phase in &plan.phases {
            let mut owner: Vec<(u64, u64, u32)> = plan.buffers.iter().zip(0..)
                .filter(|(buffer, _)| buffer.persistent)
                .map(|(buffer, id)| (buffer.offset, buffer.offset + buffer.bytes(), id)).collect();
            for launch in &phase.launches {
                for touch in launch.touches() {
                    let buffer = plan.buffer(touch.buffer);
                    let (start, end) = (buffer.offset, buffer.offset + buffer.bytes());
                    let own = |owner: &(u64, u64, u32)| owner.2 == touch.buffer.0;
                    if touch.operand.access.reads() {
                        prop_assert!(owner.iter().any(own), "{} reads {} after it was overwritten", launch.label, buffer.name);
                    }
                    if touch.operand.access.writes() && !owner.iter().any(own) {
                        owner.retain(|(s, e, _)| *e <= start || *s >= end);
                        owner.push((start, end, touch.buffer.0));
                    }
                }
            }
        }
    }
}

/// What differs between architectures is how a kernel is built, never what is computed: the same launches of the same
/// keys with the same parameter blocks.
#[test]
fn every_architecture_launches_the_same_keys_with_the_same_parameters() {
    let config = |json: &str| ModelConfig::from_json(json).unwrap();
    let teacher = config(include_str!("../../../aot/models/qwen2.5-1.5b.json"));
    let student = config(include_str!("../../../aot/models/qwen2.5-0.5b.json"));
    for precision in [Precision::Fp32, Precision::Bf16] {
        for (batch, seq_len) in [(1, 33), (8, 1024)] {
            let launches = |arch: Arch| -> Vec<(String, String, Vec<u8>)> {
                let plan =
                    TrainingPlan::new(&teacher, &student, &recipe(batch, seq_len, precision), arch).unwrap().plan;
                let of_phase = |phase: precast_plan::Phase| {
                    let name = phase.name;
                    phase.launches.into_iter().map(move |l| (name.to_owned(), l.key.to_string(), l.params))
                };
                plan.phases.into_iter().flat_map(of_phase).collect()
            };
            let expected = launches(Arch::Sim);
            for arch in Arch::GPUS {
                assert!(launches(arch) == expected, "{arch}, {precision:?}, {batch} x {seq_len}");
            }
        }
    }
}

/// What is kept of a block, per token: the outputs of two norms with their scales, and that of SwiGLU.
#[test]
fn recomputing_takes_the_same_kernels_and_less_memory() {
    let config = |json: &str| ModelConfig::from_json(json).unwrap();
    let teacher = config(include_str!("../../../aot/models/qwen2.5-1.5b.json"));
    let student = config(include_str!("../../../aot/models/qwen2.5-0.5b.json"));
    for precision in [Precision::Fp32, Precision::Bf16] {
        let [kept, recomputed] = [false, true].map(|recompute| {
            let recipe = Recipe { recompute, ..recipe(8, 1024, precision) };
            TrainingPlan::new(&teacher, &student, &recipe, Arch::Sm90a).unwrap().plan
        });
        assert_eq!(keys(&kept), keys(&recomputed));
        let layers = student.layers as usize;
        assert_eq!(recomputed.launches().count() - kept.launches().count(), 3 * layers);
        let width = u64::from(2 * student.hidden + student.intermediate);
        let of_block = 8192 * (width * precision.dtype().bytes() + 2 * 4);
        let saved = kept.arena_bytes - recomputed.arena_bytes;
        // All blocks' but that of the block whose backward runs.
        assert!(saved >= of_block * (u64::from(student.layers) - 1), "{saved} {of_block}");
        assert!(saved <= of_block * u64::from(student.layers), "{saved} {of_block}");
    }
}

#[test]
fn the_keys_of_a_model_are_what_people_read() {
    let json = include_str!("../../../aot/models/qwen2.5-0.5b.json");
    let model = ModelConfig::from_json(json).unwrap();
    let lines: Vec<String> = build_keys(&[model], Arch::Sm121).iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
