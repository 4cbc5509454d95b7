//! Plans of several ranks fit together: sends match receives, and each rank keeps its part.

use crate::support::*;
use precast_plan::category;

fn model() -> ModelConfig {
    first_layers(2, "smollm2-135m")
}

/// Plans all ranks.
fn plans(
    config: &ModelConfig,
    recipe: &Recipe,
    adapters: &Adapters,
    (replicas, ranks): (u32, u32),
) -> Vec<TrainingPlan> {
    let formats = Formats::dense();
    let student = Student { config, formats: &formats, adapters };
    let request = TrainingRequest::new(student, recipe, Arch::Sim).taught_by(Some(config));
    let plan = |rank| {
        TrainingPlan::new(TrainingRequest { share: Share { replicas, ranks, rank }, ..request.clone() }).unwrap()
    };
    (0..ranks).map(plan).collect()
}

/// Calls with the plans of all ranks, for each recipe, with and without adapters, in each of these shares.
fn each(shares: [(u32, u32); 3], mut check: impl FnMut((u32, u32), Vec<TrainingPlan>)) {
    let config = model();
    for recipe in Recipe::every(64) {
        for adapters in [Adapters::none(), Adapters::uniform(&config, &Target::ALL, 8, 1.0)] {
            shares.iter().for_each(|share| check(*share, plans(&config, &recipe, &adapters, *share)));
        }
    }
}

/// A recipe with a teacher.
fn distillation() -> Recipe {
    Recipe::every(64).find(|recipe| recipe.objective.has_teacher()).unwrap()
}

/// Returns the exchanges in running order, with their phases.
fn exchanges(plan: &TrainingPlan) -> Vec<(&str, &Exchange)> {
    let nodes = plan.plan.phases.iter().flat_map(|phase| phase.nodes.iter().map(move |node| (phase, node)));
    nodes.filter_map(|(phase, node)| Some((phase.name.as_str(), exchange(node)?))).collect()
}

fn exchange(node: &Node) -> Option<&Exchange> {
    if let Work::Exchange(exchange) = &node.work { Some(exchange) } else { None }
}

/// Start and end in the arena, and true for a write.
type Range = (u64, u64, bool);

fn ranges(plan: &Plan, node: &Node) -> Vec<Range> {
    let range = |touch: Touch| {
        let start = plan.buffer(touch.buffer).offset + touch.offset;
        (start, start + touch.bytes, touch.access.writes())
    };
    node.touches().into_iter().map(range).collect()
}

/// True if two touch the same bytes, and one of them writes.
fn conflict(one: &[Range], other: &[Range]) -> bool {
    one.iter()
        .any(|(start, end, writes)| other.iter().any(|(from, to, also)| start < to && from < end && (*writes || *also)))
}

#[test]
fn gradients_leave_complete_and_are_read_after_they_arrive() {
    each([(2, 2), (3, 3), (8, 4)], |share, plans| {
        for training in plans {
            let (plan, nodes) = (&training.plan, &training.plan.phase(LAST).nodes);
            let waited = waited_for(nodes);
            let touched: Vec<_> = nodes.iter().map(|node| ranges(plan, node)).collect();
            let mut sent = 0;
            for (index, node) in nodes.iter().enumerate() {
                let Some(exchange) = exchange(node) else { continue };
                // This rank's losses are already in place.
                let gradients = exchange.sends.iter().map(|(_, tensor)| tensor.buffer != training.metrics.buffer);
                let sends = touched[index].iter().zip(gradients).filter(|(_, is_gradient)| *is_gradient);
                let sends: Vec<Range> = sends.map(|(range, _)| *range).collect();
                sent += exchange.sends.iter().map(|(_, tensor)| tensor.elems).sum::<u64>();
                for (other, range) in touched.iter().enumerate().filter(|(other, _)| *other != index) {
                    if !conflict(range, &touched[index]) {
                        continue;
                    }
                    let label = &nodes[other].label;
                    let (first, second) = (other.min(index), other.max(index));
                    assert!(waited[second][first], "{label} and {} run at once", node.label);
                    assert!(other < index || !conflict(range, &sends), "{label} writes what has left");
                }
            }
            let shards = &training.shards;
            let losses = 2 * u64::from(share.1 - 1);
            assert_eq!(sent, shards.elems() - shards.own_elems() + losses, "all gradients leave once");
        }
    });
}

#[test]
fn earlier_layers_compute_while_gradients_of_later_ones_move() {
    let config = first_layers(4, "smollm2-135m");
    let recipe = distillation();
    for training in plans(&config, &recipe, &Adapters::none(), (2, 2)) {
        let nodes = &training.plan.phase(LAST).nodes;
        let waited = waited_for(nodes);
        let is_of = |index: usize, layer: u32| nodes[index].label.starts_with(&format!("student.layers.{layer}."));
        let first = nodes.iter().position(|node| exchange(node).is_some()).unwrap();
        assert!(is_of(first - 1, 3), "the last layer's leave first, behind {}", nodes[first - 1].label);
        let beside = (first..nodes.len()).filter(|later| !waited[*later][first] && is_of(*later, 2)).count();
        assert!(beside > 10, "{beside} nodes of the layer before need nothing of it");
        assert!(nodes.iter().filter_map(exchange).count() >= 8);
    }
}

/// The embedding's gradient is the largest and complete last: the lowest layer's matrices are computed beside its
/// exchange, and then only theirs remain to be sent.
#[test]
fn the_lowest_layer_hides_the_exchange_of_the_embedding() {
    let config = first_layers(4, "smollm2-135m");
    for training in plans(&config, &distillation(), &Adapters::none(), (2, 2)) {
        let nodes = &training.plan.phase(LAST).nodes;
        let waited = waited_for(nodes);
        let embedding = nodes.iter().rposition(|node| node.label == "student.embedding.bwd").unwrap();
        let sent = (embedding..nodes.len()).find(|index| exchange(&nodes[*index]).is_some()).unwrap();
        let is_beside = |index: &usize| !waited[*index][sent] && nodes[*index].label.starts_with("student.layers.0.");
        let beside: Vec<usize> = (sent..nodes.len()).filter(is_beside).collect();
        let labels: Vec<&str> = beside.iter().map(|index| nodes[*index].label.as_str()).collect();
        assert_eq!(labels.iter().filter(|label| label.ends_with(".wgrad")).count(), 4, "{labels:?}");
        let others = nodes[beside[beside.len() - 1]..].iter().filter_map(exchange);
        let layers = 4 * (training.shards.elems() - u64::from(config.vocab) * u64::from(config.hidden)) / 2;
        assert!(others.map(|exchange| exchange.bytes(u32::MAX)).sum::<u64>() <= layers / 3);
    }
}

/// Received gradients of two buckets, bytes.
const TWO_BUCKETS: u64 = 2 * (128 << 20);

/// Inputs of the postponed launches live longer, and all that is received behind them lies side by side: where other
/// activations have gone.
#[test]
fn the_last_micro_batch_takes_hardly_more_memory_than_others() {
    // A tied head, and one of its own.
    let students = ["qwen2.5-0.5b", "qwen2.5-7b"].map(config);
    for (precision, recompute) in
        [Precision::Bf16, Precision::Int8].into_iter().flat_map(|p| Recompute::ALL.map(|r| (p, r)))
    {
        let recipe = Recipe { batch: 8, seq_len: 1024, precision, recompute, ..RECIPE };
        for (student, ranks) in students.iter().flat_map(|student| [2, 8].map(|ranks| (student, ranks))) {
            let share = Share { replicas: ranks, ranks, rank: 0 };
            let request = TrainingRequest::new(student, &recipe, Arch::Sm90a).taught_by(Some(student));
            let plan = TrainingPlan::new(TrainingRequest { share, ..request }).unwrap().plan;
            let [micro, last] = [MICRO, LAST].map(|phase| {
                let touched =
                    plan.phase(phase).nodes.iter().flat_map(Node::touches).map(|touch| plan.buffer(touch.buffer));
                touched.map(|buffer| buffer.offset + buffer.bytes()).max().unwrap()
            });
            assert!(last <= micro + TWO_BUCKETS, "{precision} {recompute} {ranks}: {last} {micro}");
        }
    }
}

#[test]
fn what_one_sends_another_takes() {
    each([(2, 2), (3, 3), (8, 4)], |_, plans| {
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
    });
}

#[test]
fn every_kernel_of_a_share_is_built() {
    let built = build_keys(&[model()]).on(Arch::Sim);
    each([(4, 1), (8, 2), (3, 3)], |_, plans| {
        plans.iter().for_each(|plan| assert_covered(&built, &plan.plan));
    });
}

#[test]
fn a_rank_keeps_its_part_and_one_keeps_everything() {
    let config = model();
    let recipe = distillation();
    let bytes = |share, category| row(&plans(&config, &recipe, &Adapters::none(), share)[0].plan, category).unwrap();
    let [one, two, four] = [(4, 1), (4, 2), (4, 4)].map(|share| bytes(share, category::MOMENTS));
    assert!(two < one * 51 / 100 && four < one * 26 / 100, "{one} {two} {four}");
    // log2 of the rank's replicas more gradient buffers.
    let [one, two, four] = [(4, 1), (4, 2), (4, 4)].map(|share| bytes(share, category::GRADIENTS));
    let gradient = one - two;
    assert!(gradient == two - four && gradient > 4 * 10_000_000, "{one} {two} {four}");
}

#[test]
fn moments_in_bf16_take_half_the_memory_and_change_nothing_else() {
    let config = model();
    for recipe in Precision::ALL.map(|precision| Recipe { precision, ..distillation() }) {
        for adapters in [Adapters::none(), Adapters::uniform(&config, &Target::ALL, 8, 1.0)] {
            for share in [(4, 1), (4, 2), (4, 4)] {
                let of = |moments| plans(&config, &Recipe { moments, ..recipe }, &adapters, share);
                for (whole, half) in of(Moments::Fp32).into_iter().zip(of(Moments::Bf16)) {
                    let rows = |plan: &TrainingPlan| MemoryTable::of(&plan.plan).rows;
                    for (whole, half) in rows(&whole).into_iter().zip(rows(&half)) {
                        assert_eq!(half.category, whole.category, "{share:?}");
                        // But for the alignment of buffers.
                        let (expected, most) = match whole.category == category::MOMENTS {
                            true => (whole.bytes / 2, 512),
                            false => (whole.bytes, 0),
                        };
                        assert!(half.bytes.abs_diff(expected) <= most, "{share:?}: {} of {}", half.bytes, whole.bytes);
                    }
                }
            }
        }
    }
}

#[test]
fn weights_are_gathered_beside_the_teacher() {
    let config = model();
    for recipe in Precision::ALL.map(|precision| Recipe { precision, ..distillation() }) {
        let plan = &plans(&config, &recipe, &Adapters::none(), (2, 2))[0].plan;
        let touched = |nodes: &[Node]| -> Vec<Range> { nodes.iter().flat_map(|node| ranges(plan, node)).collect() };
        let gathered = touched(&plan.phase(GATHER).nodes);
        // A step of one micro-batch has only the last one.
        for name in [MICRO, LAST] {
            let phase = plan.phase(name);
            let parts: Vec<_> = phase.parts().collect();
            assert_eq!(parts.len(), 2, "{name}");
            let teacher = &phase.nodes[parts[0].clone()];
            assert!(!conflict(&gathered, &touched(teacher)), "{name}: the teacher touches what is gathered");
            assert!(teacher.iter().all(|node| node.label.starts_with("teacher.")), "{name}");
        }
        let alone = &plans(&config, &recipe, &Adapters::none(), (2, 1))[0].plan;
        assert_eq!(alone.phase(MICRO).parts().count(), 1);
    }
}
