//! Training for a file in blocks: what its plan adds, and what it refuses.

use crate::support::*;

const UNTAUGHT: Recipe = Recipe { objective: Objective::CrossEntropy, ..RECIPE };

fn student() -> ModelConfig {
    first_layers(3, "smollm2-135m")
}

/// Labels of the launches of a phase that round.
fn rounds(plan: &TrainingPlan, phase: &str) -> Vec<String> {
    let phase = plan.plan.phases.iter().find(|one| one.name == phase).unwrap();
    let labels = phase.nodes.iter().map(|node| node.label.clone());
    labels.filter(|label| label.contains("rounded")).collect()
}

/// Neighbors are one launch, in an update as at the start, and every micro-batch launches what it did.
#[test]
fn an_update_rounds_in_few_launches_and_micro_batches_know_nothing_of_it() {
    let student = student();
    let formats = Formats::rounded(&student, Block::Q8_0, Block::Q8_0);
    for precision in [Precision::Fp32, Precision::Bf16] {
        let recipe = Recipe { precision, ..UNTAUGHT };
        let [rounded, dense] =
            [&formats, &Formats::dense()].map(|formats| alone((&student, formats), &recipe, Arch::Sim));
        for phase in [CAST, UPDATE] {
            let found = rounds(&rounded, phase);
            assert!((1..=2).contains(&found.len()), "{precision} {phase}: {found:?}");
            assert!(rounds(&dense, phase).is_empty());
        }
        let micro = |plan: &TrainingPlan| {
            let phase = plan.plan.phases.iter().find(|one| one.name == MICRO).unwrap();
            phase.nodes.iter().map(|node| node.label.clone()).collect::<Vec<_>>()
        };
        assert_eq!(micro(&rounded), micro(&dense), "{precision}");
    }
}

/// In int8 no layer has a dense copy: it is rounded where it is made, before it is quantized.
#[test]
fn int8_is_made_of_rounded_layers() {
    let student = student();
    let formats = Formats::rounded(&student, Block::Q4_0, Block::Q8_0);
    let recipe = Recipe { precision: Precision::Int8, ..UNTAUGHT };
    let plan = alone((&student, &formats), &recipe, Arch::Sim);
    for phase in [CAST, UPDATE, GUARD] {
        assert!(rounds(&plan, phase).len() >= student.layers.len(), "{phase}: {:?}", rounds(&plan, phase));
    }
}

/// A rank rounds what it updates, and has no other masters until all are collected, where gradients were.
#[test]
fn ranks_round_their_own_pieces() {
    let student = student();
    let plan = |precision, ranks| {
        let formats = Formats::rounded(&student, Block::Q4_K, Block::Q6_K);
        let recipe = Recipe { precision, ..UNTAUGHT };
        let share = Share { replicas: ranks, ranks, rank: 1 };
        let request = TrainingRequest { share, ..TrainingRequest::new((&student, &formats), &recipe, Arch::Sim) };
        TrainingPlan::new(request).unwrap()
    };
    let rounded = |plan: &TrainingPlan, phase| -> u64 {
        let launches = plan.plan.phase(phase).launches().filter(|launch| launch.key.to_string().contains("fake_quant"));
        launches.flat_map(|launch| launch.operands()).map(|(operand, ..)| operand.elems).sum::<u64>() / 2
    };
    for precision in [Precision::Fp32, Precision::Bf16, Precision::Int8] {
        for ranks in [2, 4] {
            let plan = plan(precision, ranks);
            assert!(plan.collects_masters(), "{precision}");
            assert!(plan.plan.phases.iter().any(|phase| phase.name == MASTERS));
            let part = rounded(&plan, UPDATE) as f64 / rounded(&plan, CAST) as f64;
            assert!(part == 1.0 && rounded(&plan, GATHER) == 0, "{precision} {ranks}: {part}");
            let masters = row(&plan.plan, category::MASTER_WEIGHTS).unwrap();
            assert!(masters < plan.shards.elems() * 5 / u64::from(ranks), "{precision} {ranks}: {masters}");
        }
    }
}

#[test]
fn a_matrix_that_is_in_no_blocks_is_refused_by_name() {
    let student = student();
    let whole = Formats::rounded(&student, Block::Q4_0, Block::Q8_0);
    for (missing, _) in whole.iter() {
        let formats = whole.iter().filter(|(name, _)| *name != missing);
        let formats: Formats = formats.map(|(name, block)| (name.to_owned(), block)).collect();
        let request = TrainingRequest::new((&student, &formats), &UNTAUGHT, Arch::Sim);
        let refused = TrainingPlan::new(request).unwrap_err();
        assert!(matches!(&refused, PlanError::Rounded { name, .. } if name == missing), "{refused}");
    }
}
