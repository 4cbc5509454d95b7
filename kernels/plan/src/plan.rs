//! Plans: buffers in one arena, and phases of nodes with their dependencies.

use precast_kernels::Arch;

use crate::buffer::{Buffer, BufferId, Tensor};
use crate::node::{Launch, Node};

/// Nodes that run as one: on a GPU, one graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub name: String,
    /// In an order that respects the dependencies.
    pub nodes: Vec<Node>,
    /// Nodes before which it is divided: what is before the first may run beside what another phase has left under way.
    pub cuts: Vec<u32>,
}

impl Phase {
    /// Its nodes, divided at its cuts; all of them where there is none.
    pub fn parts(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let ends = self.cuts.iter().map(|cut| *cut as usize).chain([self.nodes.len()]);
        ends.scan(0, |start, end| Some(std::mem::replace(start, end)..end))
    }

    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.nodes.iter().filter_map(Node::launch)
    }
}

/// What is planned for cuBLASLt itself besides its workspaces: kernels that it loads, and what it keeps of them.
const CUBLAS_BYTES: u64 = 256 << 20;

/// Buffers and nodes, as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The architecture variants were selected for.
    pub arch: Arch,
    pub buffers: Vec<Buffer>,
    pub phases: Vec<Phase>,
    /// Size of the one allocation that holds every buffer.
    pub arena_bytes: u64,
}

impl Plan {
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// A whole buffer, by name.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        let (buffer, id) = self.buffers.iter().zip(0..).find(|(buffer, _)| buffer.name == name)?;
        Some(Tensor { buffer: BufferId(id), offset: 0, format: buffer.format, elems: buffer.elems })
    }

    /// A phase.
    ///
    /// # Panics
    /// If there is no such phase.
    pub fn phase(&self, name: &str) -> &Phase {
        match self.phases.iter().find(|phase| phase.name == name) {
            Some(phase) => phase,
            None => panic!("the plan has no phase `{name}`"),
        }
    }

    /// Device memory that it takes: the arena, and where cuBLASLt computes products what that takes for itself.
    pub fn device_bytes(&self) -> u64 {
        self.arena_bytes + if self.products().next().is_some() { CUBLAS_BYTES } else { 0 }
    }

    /// Launches that cuBLASLt computes.
    pub fn products(&self) -> impl Iterator<Item = &Launch> {
        self.launches().filter(|launch| launch.pair().is_none())
    }

    /// Every launch of every phase.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.phases.iter().flat_map(Phase::launches)
    }
}
