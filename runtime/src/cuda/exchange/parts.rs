//! Divides a sequence into parts: graphs, which run in order on one stream, and exchanges, which run on another beside
//! them.

use std::ops::Range;

use crate::driver::{Bound, BoundWork};

/// A part of a sequence. Exchanges wait for the graphs before them, and graphs for the exchanges that they need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum SequencePart {
    Graph {
        nodes: Range<usize>,
        /// Number of exchanges of the sequence that must have ended.
        exchanges: usize,
    },
    Exchange(usize),
}

/// Divides a sequence at its exchanges.
pub(in crate::cuda) fn divide(sequence: &[Bound]) -> Vec<SequencePart> {
    let is_exchange = |node: usize| matches!(sequence[node].work, BoundWork::Exchange(_));
    let all: Vec<usize> = (0..sequence.len()).filter(|node| is_exchange(*node)).collect();
    // The last exchange that a node needs, counted from one: exchanges end in order.
    let needs = |node: &Bound| {
        let of_node = node.dependencies.iter().filter_map(|earlier| all.binary_search(&(*earlier as usize)).ok());
        of_node.map(|exchange| exchange + 1).max().unwrap_or(0)
    };
    let mut parts = Vec::new();
    let graph = |nodes: Range<usize>, parts: &mut Vec<SequencePart>| {
        if !nodes.is_empty() {
            let exchanges = sequence[nodes.clone()].iter().map(needs).max().unwrap_or(0);
            parts.push(SequencePart::Graph { nodes, exchanges });
        }
    };
    let mut first = 0;
    for exchange in &all {
        graph(first..*exchange, &mut parts);
        parts.push(SequencePart::Exchange(*exchange));
        first = exchange + 1;
    }
    graph(first..sequence.len(), &mut parts);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::BoundExchange;
    use crate::driver::{BoundLaunch, KernelId};

    /// Builds a sequence: each node is (is an exchange, dependencies).
    fn sequence(nodes: &[(bool, Vec<u32>)]) -> Vec<Bound> {
        let key = precast_core::Key::new(precast_kernels::add::Add {});
        let node = |(is_exchange, dependencies): &(bool, Vec<u32>)| {
            let geometry = precast_core::Geometry { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
            let launch = BoundLaunch {
                kernel: KernelId(0),
                key: key.clone(),
                geometry,
                params: Vec::new(),
                tensor_maps: Vec::new(),
            };
            let work = match is_exchange {
                true => BoundWork::Exchange(BoundExchange { sends: Vec::new(), receives: Vec::new() }),
                false => BoundWork::Launch(launch),
            };
            Bound { label: String::new(), work, dependencies: dependencies.clone() }
        };
        nodes.iter().map(node).collect()
    }

    #[test]
    fn a_graph_waits_for_the_exchanges_that_it_needs_alone() {
        let (launch, exchange) = (false, true);
        let nodes = [
            (launch, vec![]),
            (exchange, vec![0]),
            (launch, vec![0]),
            (exchange, vec![2]),
            (launch, vec![1]),
            (launch, vec![4]),
            (exchange, vec![]),
            (exchange, vec![]),
        ];
        let graph = |nodes, exchanges| SequencePart::Graph { nodes, exchanges };
        let expected = [
            graph(0..1, 0),
            SequencePart::Exchange(1),
            graph(2..3, 0),
            SequencePart::Exchange(3),
            graph(4..6, 1),
            SequencePart::Exchange(6),
            SequencePart::Exchange(7),
        ];
        assert_eq!(divide(&sequence(&nodes)), expected);
        assert_eq!(divide(&[]), []);
    }

    /// A reproducible pseudorandom generator.
    fn numbers() -> impl FnMut(u32) -> u32 {
        let mut state = 1u64;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % u64::from(below)) as u32
        }
    }

    #[test]
    fn whatever_a_node_needs_has_ended_before_it_begins() {
        let mut random = numbers();
        for _ in 0..500 {
            let nodes: Vec<(bool, Vec<u32>)> = (0..1 + random(24))
                .map(|index| {
                    let needed = (0..random(3)).filter(|_| index > 0).map(|_| random(index.max(1))).collect();
                    (random(4) == 0, needed)
                })
                .collect();
            let sequence = sequence(&nodes);
            let parts = divide(&sequence);
            // By node: its graph, the exchanges waited for, and the exchanges enqueued before it.
            let (mut asked, mut waited, mut seen) = (Vec::new(), 0, 0);
            for part in &parts {
                match part {
                    SequencePart::Exchange(node) => {
                        assert_eq!(*node, seen);
                        asked.push(*node as u32);
                        seen += 1;
                    }
                    SequencePart::Graph { nodes: range, exchanges } => {
                        assert_eq!(range.start, seen);
                        assert!(*exchanges <= asked.len(), "a graph waits for what has not been asked for");
                        waited = waited.max(*exchanges);
                        for needed in sequence[range.clone()].iter().flat_map(|node| &node.dependencies) {
                            let is_done = !nodes[*needed as usize].0 || asked[..waited].contains(needed);
                            assert!(is_done, "{nodes:?}");
                        }
                        seen = range.end;
                    }
                }
            }
            assert_eq!(seen, nodes.len());
        }
    }
}
