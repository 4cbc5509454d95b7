//! Placing buffers in one allocation.

use crate::plan::{Plan, Touch};

/// Buffers start on multiples of this many bytes.
pub const ALIGN: u64 = 256;

/// First and last launch that touches a transient buffer, and the phase they are in.
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

/// Sets every buffer's offset and the arena's size: persistent buffers one after the other, then the
/// transient ones, largest first, each at the lowest offset free over its whole life.
pub(crate) fn place(plan: &mut Plan, touches: &[Vec<Vec<Touch>>]) {
    let lives = lives(plan, touches);
    let mut next = 0;
    for buffer in plan.buffers.iter_mut().filter(|buffer| buffer.persistent) {
        buffer.offset = next;
        next += buffer.reserved_bytes();
    }
    let base = next;
    let mut order: Vec<usize> = (0..plan.buffers.len()).filter(|index| !plan.buffers[*index].persistent).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(plan.buffers[*index].reserved_bytes()), *index));
    let mut placed: Vec<usize> = Vec::new();
    let mut end = base;
    for index in order {
        let Some(life) = lives[index] else { continue };
        let bytes = plan.buffers[index].reserved_bytes();
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| lives[**other].is_some_and(|other| other.overlaps(life)))
            .map(|other| (plan.buffers[*other].offset, plan.buffers[*other].reserved_bytes()))
            .collect();
        taken.sort_unstable();
        let mut offset = base;
        for (start, length) in taken {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(start + length);
        }
        plan.buffers[index].offset = offset;
        end = end.max(offset + bytes);
        placed.push(index);
    }
    plan.arena_bytes = end;
}

/// # Panics
/// If a transient buffer is read before it is written, or used in two phases.
fn lives(plan: &Plan, touches: &[Vec<Vec<Touch>>]) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; plan.buffers.len()];
    for (phase, launches) in touches.iter().enumerate() {
        for (index, touches) in launches.iter().enumerate() {
            for touch in touches {
                let buffer = plan.buffer(touch.buffer);
                if buffer.persistent {
                    continue;
                }
                match &mut lives[touch.buffer.0 as usize] {
                    Some(life) => {
                        assert_eq!(life.phase, phase, "transient buffer {} is used in two phases", buffer.name);
                        life.last = index;
                    }
                    none => {
                        let reads = touch.operand.access.reads();
                        assert!(!reads, "transient buffer {} is read before it is written", buffer.name);
                        *none = Some(Life { phase, first: index, last: index });
                    }
                }
            }
        }
    }
    lives
}
