//! Placing buffers in one allocation.

use crate::buffer::Buffer;
use crate::node::Touch;

/// First and last node that touches a transient buffer, and the phase they are in.
#[derive(Clone, Copy, Debug)]
struct Life {
    phase: usize,
    first: usize,
    last: usize,
}

impl Life {
    /// Phases run one after the other, so buffers of two phases may share memory.
    fn overlaps(self, other: Self) -> bool {
        self.phase == other.phase && self.first <= other.last && other.first <= self.last
    }
}

/// Sets every buffer's offset and returns the arena's size: persistent buffers one after the other, then the transient
/// ones, largest first, each at the lowest offset free over its whole life. `touches` are those of each phase's nodes.
///
/// # Panics
/// If a transient buffer is read before it is written, or used in two phases.
pub(crate) fn place(buffers: &mut [Buffer], touches: &[Vec<Vec<Touch>>]) -> u64 {
    let lives = lives(buffers, touches);
    let mut next = 0;
    for buffer in buffers.iter_mut().filter(|buffer| buffer.persistent) {
        buffer.offset = next;
        next += buffer.reserved_bytes();
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
        let mut offset = base;
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

fn lives(buffers: &[Buffer], touches: &[Vec<Vec<Touch>>]) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; buffers.len()];
    for (phase, nodes) in touches.iter().enumerate() {
        for (index, touches) in nodes.iter().enumerate() {
            for touch in touches {
                let buffer = &buffers[touch.buffer.0 as usize];
                if buffer.persistent {
                    continue;
                }
                match &mut lives[touch.buffer.0 as usize] {
                    Some(life) => {
                        assert_eq!(life.phase, phase, "transient buffer {} is used in two phases", buffer.name);
                        life.last = index;
                    }
                    none => {
                        let reads = touch.access.reads();
                        assert!(!reads, "transient buffer {} is read before it is written", buffer.name);
                        *none = Some(Life { phase, first: index, last: index });
                    }
                }
            }
        }
    }
    lives
}
