//! Phases, and the plan that they make.

use std::collections::BTreeSet;

use super::buffer::{Buffer, BufferId, Tensor};
use super::node::{Launch, Node};
use crate::{Arch, KeyVariant};

/// Returns every (key, variant) of the bundle that a plan launches. The only enumeration: the build compiles it,
/// start-up checks it, the step executes that same plan.
pub fn keys(plan: &Plan) -> BTreeSet<KeyVariant> {
    plan.launches().filter_map(Launch::pair).collect()
}

/// Nodes that run as one: on a GPU, one graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Name, by which programs run it.
    pub name: String,
    /// In an order that respects the dependencies.
    pub nodes: Vec<Node>,
    /// Nodes before which the phase is divided: the part before the first cut may run beside another phase's unfinished
    /// work.
    pub cuts: Vec<u32>,
    /// True if it runs on the side stream, beside later copies to the device.
    pub beside: bool,
}

impl Phase {
    /// Returns the ranges of its nodes between cuts; one range without cuts.
    pub fn parts(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let ends = self.cuts.iter().map(|cut| *cut as usize).chain([self.nodes.len()]);
        ends.scan(0, |start, end| Some(std::mem::replace(start, end)..end))
    }

    /// Returns its launches, in order.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.nodes.iter().filter_map(Node::launch)
    }
}

/// Estimate of cuBLASLt's own memory besides its workspaces: kernels and their state.
const CUBLAS_BYTES: u64 = 256 << 20;

/// Buffers and nodes, as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Architecture that variants are selected for.
    pub arch: Arch,
    /// Every buffer, by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// Phases, in the order in which they were started.
    pub phases: Vec<Phase>,
    /// Size of the one allocation for all buffers.
    pub arena_bytes: u64,
}

impl Plan {
    /// Returns the buffer of a number.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// Returns a whole buffer, by name.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        let (buffer, id) = self.buffers.iter().zip(0..).find(|(buffer, _)| buffer.name == name)?;
        Some(Tensor { buffer: BufferId(id), offset: 0, format: buffer.format, elems: buffer.elems })
    }

    /// Returns a phase, by name.
    ///
    /// # Panics
    /// If there is no such phase.
    pub fn phase(&self, name: &str) -> &Phase {
        match self.phases.iter().find(|phase| phase.name == name) {
            Some(phase) => phase,
            None => panic!("the plan has no phase `{name}`"),
        }
    }

    /// Returns its device memory, bytes: the arena, and cuBLASLt's own memory if it computes GEMMs.
    pub fn device_bytes(&self) -> u64 {
        self.arena_bytes + if self.cublas_gemms().next().is_some() { CUBLAS_BYTES } else { 0 }
    }

    /// Returns launches that cuBLASLt computes.
    pub fn cublas_gemms(&self) -> impl Iterator<Item = &Launch> {
        self.launches().filter(|launch| launch.pair().is_none())
    }

    pub(crate) fn launches_mut(&mut self) -> impl Iterator<Item = &mut Launch> {
        self.phases.iter_mut().flat_map(|phase| &mut phase.nodes).filter_map(Node::launch_mut)
    }

    /// Returns the launches of all phases.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.phases.iter().flat_map(Phase::launches)
    }
}
