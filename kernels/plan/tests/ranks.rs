//! Plans of several ranks fit together: what one sends another takes, and each keeps its part.

use std::collections::BTreeMap;

use precast_kernels::Arch;
use precast_plan::training::{GATHER, MICRO};
use precast_plan::{
    Adapters, Exchange, Formats, MemoryTable, ModelConfig, Recipe, Share, Student, Target, Teacher, TrainingPlan, Work,
    build_keys, keys,
};

fn config() -> ModelConfig {
    let json = include_str!("../../../aot/models/smollm2-135m.json");
    ModelConfig { layers: 2, ..ModelConfig::from_json(json).unwrap() }
}

/// The plans of all ranks.
fn plans(
    config: &ModelConfig,
    recipe: &Recipe,
    adapters: &Adapters,
    (replicas, ranks): (u32, u32),
) -> Vec<TrainingPlan> {
    let formats = Formats::dense();
    let plan = |rank| {
        let student = Student { config, formats: &formats, adapters };
        let teacher = Some(Teacher::Model { config, formats: &formats });
        let share = Share { replicas, ranks, rank };
        TrainingPlan::with_share(teacher, student, recipe, share, Arch::Sim).unwrap()
    };
    (0..ranks).map(plan).collect()
}

/// Exchanges in the order in which they run, with their phases.
fn exchanges(plan: &TrainingPlan) -> Vec<(&str, &Exchange)> {
    let nodes = plan.plan.phases.iter().flat_map(|phase| phase.nodes.iter().map(move |node| (phase, node)));
    let exchange = nodes.filter_map(|(phase, node)| match &node.work {
        Work::Exchange(exchange) => Some((phase.name.as_str(), exchange)),
        Work::Launch(_) => None,
    });
    exchange.collect()
}

#[test]
fn what_one_sends_another_takes() {
    let config = config();
    let some = Adapters::uniform(&config, &Target::ALL, 8, 1.0);
    for recipe in Recipe::every(64) {
        for adapters in [Adapters::none(), some.clone()] {
            for (replicas, ranks) in [(2, 2), (3, 3), (8, 4)] {
                let plans = plans(&config, &recipe, &adapters, (replicas, ranks));
                let of_ranks: Vec<_> = plans.iter().map(exchanges).collect();
                assert!(of_ranks.iter().all(|list| list.len() == of_ranks[0].len() && list.len() >= 3));
                for (at, (phase, _)) in of_ranks[0].iter().enumerate() {
                    let mut sent: BTreeMap<(u32, u32), Vec<u64>> = BTreeMap::new();
                    let mut taken = sent.clone();
                    for (rank, list) in (0..).zip(&of_ranks) {
                        assert_eq!(list[at].0, *phase, "ranks are in the same phase");
                        for (to, tensor) in &list[at].1.sends {
                            sent.entry((rank, *to)).or_default().push(tensor.bytes());
                        }
                        for (from, tensor) in &list[at].1.receives {
                            taken.entry((*from, rank)).or_default().push(tensor.bytes());
                        }
                    }
                    assert_eq!(sent, taken, "exchange {at}, in {phase}");
                }
            }
        }
    }
}

#[test]
fn every_kernel_of_a_share_is_built() {
    let config = config();
    let built = build_keys(std::slice::from_ref(&config), Arch::Sim);
    let some = Adapters::uniform(&config, &Target::ALL, 8, 1.0);
    for recipe in Recipe::every(64) {
        for adapters in [Adapters::none(), some.clone()] {
            for share in [(4, 1), (8, 2), (3, 3)] {
                for plan in plans(&config, &recipe, &adapters, share) {
                    let missing: Vec<_> = keys(&plan.plan).into_iter().filter(|pair| !built.contains(pair)).collect();
                    assert!(missing.is_empty(), "{missing:?}");
                }
            }
        }
    }
}

#[test]
fn a_rank_keeps_its_part_and_one_keeps_everything() {
    let config = config();
    let recipe = Recipe::every(64).find(|recipe| recipe.objective.has_teacher()).unwrap();
    let bytes = |share, category: &str| {
        let plan = &plans(&config, &recipe, &Adapters::none(), share)[0].plan;
        let rows = MemoryTable::of(plan).rows;
        rows.iter().find(|row| row.category.name() == category).unwrap().bytes
    };
    let [one, two, four] = [(4, 1), (4, 2), (4, 4)].map(|share| bytes(share, "moments"));
    assert!(two < one * 51 / 100 && four < one * 26 / 100, "{one} {two} {four}");
    // log2 of the replicas of a rank further gradients.
    let [one, two, four] = [(4, 1), (4, 2), (4, 4)].map(|share| bytes(share, "gradients"));
    let gradient = one - two;
    assert!(gradient == two - four && gradient > 4 * 10_000_000, "{one} {two} {four}");
}

#[test]
fn weights_are_gathered_beside_the_teacher() {
    let config = config();
    let recipe = Recipe::every(64).find(|recipe| recipe.objective.has_teacher()).unwrap();
    let plan = &plans(&config, &recipe, &Adapters::none(), (2, 2))[0].plan;
    let micro = plan.phase(MICRO);
    let parts: Vec<_> = micro.parts().collect();
    assert_eq!(parts.len(), 2);
    let touched = |nodes: &[precast_plan::Node]| -> Vec<(u64, u64, bool)> {
        let touches = nodes.iter().flat_map(precast_plan::Node::touches);
        let range = touches.map(|touch| {
            let start = plan.buffer(touch.buffer).offset + touch.offset;
            (start, start + touch.bytes, touch.access.writes())
        });
        range.collect()
    };
    let (gathered, teacher) = (touched(&plan.phase(GATHER).nodes), touched(&micro.nodes[parts[0].clone()]));
    for (start, end, writes) in gathered {
        let conflicts = teacher.iter().any(|(from, to, also)| start < *to && *from < end && (writes || *also));
        assert!(!conflicts, "the teacher touches what is gathered");
    }
    assert!(micro.nodes[parts[0].clone()].iter().all(|node| node.label.starts_with("teacher.")));
    let alone = &plans(&config, &recipe, &Adapters::none(), (2, 1))[0].plan;
    assert_eq!(alone.phase(MICRO).parts().count(), 1);
}
