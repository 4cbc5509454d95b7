//! Places buffers in one allocation.

use crate::buffer::Buffer;
use crate::node::Touch;

/// Accesses of a phase's nodes.
pub(crate) struct Touched {
    /// For a start-up phase, the number of buffers declared before the first of them.
    pub startup: Option<usize>,
    /// Accesses by node.
    pub nodes: Vec<Vec<Touch>>,
}

/// First and last node that touches a transient buffer, and their stage: a phase, or all start-up phases.
#[derive(Clone, Copy, Debug)]
struct Life {
    stage: usize,
    first: usize,
    last: usize,
}

impl Life {
    /// Stages run one after the other, so buffers of two stages may share memory.
    fn overlaps(self, other: Self) -> bool {
        self.stage == other.stage && self.first <= other.last && other.first <= self.last
    }
}

/// Sets every buffer's offset and returns the arena's size: persistent buffers one after the other, then the transient
/// ones, largest first, each at the lowest offset free over its whole life. Buffers of start-up phases may overlap
/// persistent ones that are declared later.
///
/// # Panics
/// If a transient buffer is read before it is written, or used in two phases that are not both start-up phases.
pub(crate) fn place(buffers: &mut [Buffer], phases: &[Touched]) -> u64 {
    let lives = lives(buffers, phases);
    let startup = phases.iter().find_map(|phase| phase.startup);
    let (mut next, mut startup_base) = (0, 0);
    for (index, buffer) in buffers.iter_mut().enumerate().filter(|(_, buffer)| buffer.persistent) {
        buffer.offset = next;
        next += buffer.reserved_bytes();
        if startup.is_some_and(|declared| index < declared) {
            startup_base = next;
        }
    }
    let base = next;
    let mut order: Vec<usize> = (0..buffers.len()).filter(|index| !buffers[*index].persistent).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(buffers[*index].reserved_bytes()), *index));
    let mut placed: Vec<usize> = Vec::new();
    let mut end = base;
    for index in order {
        let Some(life) = lives[index] else { continue };
        let bytes = buffers[index].reserved_bytes();
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| lives[**other].is_some_and(|other| other.overlaps(life)))
            .map(|other| (buffers[*other].offset, buffers[*other].reserved_bytes()))
            .collect();
        taken.sort_unstable();
        let mut offset = if life.stage == STARTUP { startup_base } else { base };
        for (start, length) in taken {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(start + length);
        }
        buffers[index].offset = offset;
        end = end.max(offset + bytes);
        placed.push(index);
    }
    end
}

/// Stage of all start-up phases; phase `p` after them is stage `p + 1`.
const STARTUP: usize = 0;

fn lives(buffers: &[Buffer], phases: &[Touched]) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; buffers.len()];
    let mut startup_nodes = 0;
    for (phase, Touched { startup, nodes }) in phases.iter().enumerate() {
        let (stage, start) = if startup.is_some() { (STARTUP, startup_nodes) } else { (phase + 1, 0) };
        let end = start + nodes.len();
        for (index, touches) in nodes.iter().enumerate() {
            for touch in touches {
                let buffer = &buffers[touch.buffer.0 as usize];
                if buffer.persistent {
                    continue;
                }
                // Host writes precede the phase, and host reads follow it.
                let (first, last) = if buffer.host { (start, end - 1) } else { (start + index, start + index) };
                match &mut lives[touch.buffer.0 as usize] {
                    Some(life) => {
                        assert_eq!(life.stage, stage, "transient buffer {} is used in two phases", buffer.name);
                        life.last = last;
                    }
                    none => {
                        let reads = touch.access.reads() && !buffer.host;
                        assert!(!reads, "transient buffer {} is read before it is written", buffer.name);
                        *none = Some(Life { stage, first, last });
                    }
                }
            }
        }
        if startup.is_some() {
            startup_nodes = end;
        }
    }
    lives
}
