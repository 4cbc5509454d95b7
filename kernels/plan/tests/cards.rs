//! One row on several chips: other variants, the same bits.

use precast_kernels::card::Card;

use crate::support::*;

#[test]
fn chips_of_a_row_have_other_variants_and_the_same_sums() {
    // RTX 4090, L4, RTX 4060.
    let cards = [(128, 512), (58, 1024), (24, 512)];
    let cards = cards.map(|(multiprocessors, flops_per_clock)| Card { multiprocessors, flops_per_clock });
    let mut changed = 0;
    for batch in [1, 2, 16] {
        let recipe = Recipe { batch, seq_len: 512, objective: Objective::CrossEntropy, ..RECIPE };
        let of_row = alone(&config("qwen2.5-0.5b"), &recipe, Arch::Sm89).plan;
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
