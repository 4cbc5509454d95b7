//! One row on several chips: other variants, the same bits.

use precast_kernels::Arch;
use precast_kernels::card::Card;
use precast_plan::{
    Executor, Gemm, ModelConfig, Objective, Plan, Precision, Recipe, Recompute, TrainingPlan, TrainingRequest,
};

/// Plans Qwen2.5-0.5B with as many sequences.
fn plan(arch: Arch, batch: u32) -> Plan {
    let path = format!("{}/../../aot/models/qwen2.5-0.5b.json", env!("CARGO_MANIFEST_DIR"));
    let config = ModelConfig::from_json(&std::fs::read_to_string(path).unwrap()).unwrap();
    let recipe = Recipe {
        batch,
        seq_len: 512,
        precision: Precision::Bf16,
        objective: Objective::CrossEntropy,
        weight_decay: 0.01,
        clip: 1.0,
        gemm: Gemm::Bundle,
        recompute: Recompute::None,
    };
    TrainingPlan::new(TrainingRequest::new(&config, &recipe, arch)).unwrap().plan
}

#[test]
fn chips_of_a_row_have_other_variants_and_the_same_sums() {
    // RTX 4090, L4, RTX 4060.
    let cards = [(128, 512), (58, 1024), (24, 512)];
    let cards = cards.map(|(multiprocessors, flops_per_clock)| Card { multiprocessors, flops_per_clock });
    let mut changed = 0;
    for batch in [1, 2, 16] {
        let of_row = plan(Arch::Sm89, batch);
        for card in cards {
            let mut of_card = of_row.clone();
            of_card.select_for(card);
            assert_eq!(
                (of_card.arena_bytes, of_card.launches().count()),
                (of_row.arena_bytes, of_row.launches().count())
            );
            for (launch, own) in of_row.launches().zip(of_card.launches()) {
                // Splits are parameters.
                assert_eq!((&launch.key, &launch.params), (&own.key, &own.params));
                let (Executor::Kernel(launch_build), Executor::Kernel(own_build)) = (&launch.by, &own.by) else {
                    panic!()
                };
                assert!(launch.key.kernel().sums_as(launch_build.variant, own_build.variant), "{}", launch.key);
                changed += usize::from(launch_build.variant != own_build.variant);
            }
            if card == cards[0] {
                assert_eq!(of_card, of_row, "an RTX 4090 is what the row is sized for");
            }
        }
    }
    assert!(changed > 0);
}
