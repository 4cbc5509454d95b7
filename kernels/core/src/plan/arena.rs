//! Places buffers in one allocation.

use std::collections::HashMap;

use crate::plan::buffer::{Buffer, Lifetime};
use crate::plan::node::Touch;

/// Phases whose buffers may live from one of them to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// All start-up phases, which run once, in order; so many buffers were declared before the first of them.
    Startup { declared: usize },
    /// Phases that run in any order, by the number of their stage.
    Shared(usize),
    /// One phase alone.
    Phase,
}

impl Stage {
    /// Returns the buffers declared before the first start-up phase, if this is one.
    pub fn startup(self) -> Option<usize> {
        match self {
            Stage::Startup { declared } => Some(declared),
            Stage::Shared(_) | Stage::Phase => None,
        }
    }
}

/// Accesses of a phase's nodes.
pub(crate) struct Touched {
    pub stage: Stage,
    /// Accesses by node.
    pub nodes: Vec<Vec<Touch>>,
}

/// First and last node of its stage between which a buffer has content.
#[derive(Clone, Copy, Debug)]
struct Life {
    stage: usize,
    /// The phase that it is used in; none where several may.
    phase: Option<usize>,
    first: usize,
    last: usize,
}

impl Life {
    /// Stages run one after the other, so buffers of two stages may share memory.
    fn overlaps(self, other: Self) -> bool {
        self.stage == other.stage && self.first <= other.last && other.first <= self.last
    }
}

/// Sets every buffer's offset and returns the arena's size: persistent buffers one after the other, then those of
/// stages and the transient ones, largest first, each at the lowest offset free over its whole life. Buffers of
/// start-up phases may overlap persistent ones that are declared later.
///
/// # Panics
/// If a transient buffer is read before it is written, or used in two phases that are not both start-up phases; if a
/// buffer of a stage is used in another.
pub(crate) fn place(buffers: &mut [Buffer], phases: &[Touched]) -> u64 {
    let lives = lives(buffers, phases);
    let startup = phases.iter().find_map(|phase| phase.stage.startup());
    let (mut next, mut startup_base) = (0, 0);
    for (index, buffer) in buffers.iter_mut().enumerate().filter(|(_, buffer)| buffer.is_persistent()) {
        buffer.offset = next;
        next += buffer.reserved_bytes();
        if startup.is_some_and(|declared| index < declared) {
            startup_base = next;
        }
    }
    let base = next;
    let mut order: Vec<usize> = (0..buffers.len()).filter(|index| !buffers[*index].is_persistent()).collect();
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

/// Number of the stage of all start-up phases.
const STARTUP: usize = 0;

/// Returns the number of a phase's stage.
fn number(stage: Stage, phase: usize, phases: usize) -> usize {
    match stage {
        Stage::Startup { .. } => STARTUP,
        Stage::Phase => 1 + phase,
        Stage::Shared(number) => 1 + phases + number,
    }
}

fn lives(buffers: &[Buffer], phases: &[Touched]) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; buffers.len()];
    // Nodes of each stage so far.
    let mut counts = HashMap::new();
    for (index, Touched { stage, nodes }) in phases.iter().enumerate() {
        let phase = stage.startup().is_none().then_some(index);
        let stage = number(*stage, index, phases.len());
        let start = *counts.entry(stage).or_insert(0);
        let end = start + nodes.len();
        for (index, touches) in nodes.iter().enumerate() {
            for touch in touches {
                let (buffer, life) = (&buffers[touch.buffer.0 as usize], &mut lives[touch.buffer.0 as usize]);
                let (phase, first, last) = match buffer.lifetime {
                    Lifetime::Persistent => continue,
                    Lifetime::Stage => (None, 0, usize::MAX),
                    // Host writes precede the phase, and host reads follow it.
                    Lifetime::Transient if buffer.host => (phase, start, end - 1),
                    Lifetime::Transient => (phase, start + index, start + index),
                };
                match life {
                    Some(life) => {
                        assert_eq!((life.stage, life.phase), (stage, phase), "{} is used in two phases", buffer.name);
                        life.last = last;
                    }
                    none => {
                        let reads = touch.access.reads() && !buffer.host && buffer.lifetime == Lifetime::Transient;
                        assert!(!reads, "transient buffer {} is read before it is written", buffer.name);
                        *none = Some(Life { stage, phase, first, last });
                    }
                }
            }
        }
        counts.insert(stage, end);
    }
    lives
}
