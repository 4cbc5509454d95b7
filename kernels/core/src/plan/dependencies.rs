//! Finds the dependencies between nodes of a phase.

use crate::Access;

use crate::plan::buffer::Buffer;
use crate::plan::node::Touch;

/// Arena bytes that a node touches.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    access: Access,
}

impl Range {
    fn of(touch: &Touch, buffers: &[Buffer]) -> Self {
        let start = buffers[touch.buffer.0 as usize].offset + touch.offset;
        Self { start, end: start + touch.bytes, access: touch.access }
    }

    fn conflicts(self, other: Self) -> bool {
        let overlaps = self.start < other.end && other.start < self.end;
        overlaps && (self.access.writes() || other.access.writes())
    }
}

/// Returns for each node of a phase the earlier ones it must wait for, by their accesses to placed buffers.
pub(crate) fn dependencies(nodes: &[Vec<Touch>], buffers: &[Buffer]) -> Vec<Vec<u32>> {
    let ranges = |touches: &Vec<Touch>| touches.iter().map(|touch| Range::of(touch, buffers)).collect();
    conflicts(&nodes.iter().map(ranges).collect::<Vec<_>>())
}

/// Finds conflicts: nodes that touch the same bytes of the arena, one of them writing. Physical addresses order buffers
/// that share memory, too. Edges implied by others are left out.
fn conflicts(nodes: &[Vec<Range>]) -> Vec<Vec<u32>> {
    let words = nodes.len().div_ceil(64);
    let mut before: Vec<Vec<u64>> = Vec::with_capacity(nodes.len());
    let mut result = Vec::with_capacity(nodes.len());
    for (index, ranges) in nodes.iter().enumerate() {
        let mut known = vec![0u64; words];
        let mut edges = Vec::new();
        for earlier in (0..index).rev() {
            if known[earlier / 64] >> (earlier % 64) & 1 == 1 {
                continue;
            }
            if ranges.iter().any(|range| nodes[earlier].iter().any(|other| range.conflicts(*other))) {
                edges.push(earlier as u32);
                known[earlier / 64] |= 1 << (earlier % 64);
                known.iter_mut().zip(&before[earlier]).for_each(|(known, before)| *known |= before);
            }
        }
        edges.reverse();
        result.push(edges);
        before.push(known);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64, access: Access) -> Range {
        Range { start, end, access }
    }

    #[test]
    fn dependencies_are_conflicts_without_the_implied_ones() {
        use Access::{Read, Scratch, Write};
        let nodes = [
            vec![range(0, 10, Write)],
            vec![range(20, 30, Write)],
            vec![range(0, 10, Read), range(10, 20, Write)],
            vec![range(10, 20, Read), range(0, 5, Read), range(30, 40, Scratch)],
            vec![range(5, 6, Write), range(20, 30, Read)],
            vec![range(30, 31, Scratch)],
        ];
        assert_eq!(conflicts(&nodes), [vec![], vec![], vec![0], vec![2], vec![1, 2], vec![3]]);
    }
}
