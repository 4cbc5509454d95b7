//! Launches of a step that do the same work, as phases that can be timed.

use std::collections::BTreeMap;

use itertools::Itertools;
use precast_plan::training::{MICRO, UPDATE};
use precast_plan::{Executor, Launch, Node, Phase, Plan, Work, estimate};

/// A timed sequence has at least this many launches: what starting it costs is then no part of the result.
const LEAST_LAUNCHES: usize = 16;

/// Key of a group of launches: what they compute, whose code does, and their shape.
type Alike = (String, Vec<u8>);

/// Launches of one phase with one kernel, or by cuBLASLt, and one shape.
#[derive(Clone)]
pub struct Group {
    /// The plan's phase that times it.
    pub timed_as: String,
    /// The phase they are from.
    pub phase: String,
    /// All of them.
    pub launches: Vec<Launch>,
    /// Purpose of each launch.
    pub labels: Vec<String>,
}

impl Group {
    /// Names what the launches compute, and whose code does.
    pub fn code(&self) -> String {
        self.launches[0].code()
    }

    /// Returns the CTAs of a launch along x, y and z; none by cuBLASLt.
    pub fn grid(&self) -> Option<[u32; 3]> {
        match &self.launches[0].by {
            Executor::Kernel(build) => Some(build.geometry.grid),
            Executor::Cublas(_) => None,
        }
    }

    /// Names a problem that variants differ in; none for other launches.
    pub fn problem(&self) -> Option<String> {
        let launch = &self.launches[0];
        launch.key.kernel().problem(&launch.params)
    }

    /// Names the purposes of the launches, each once, layers and chunks left open: `student.layers.*.qkv`.
    pub fn purpose(&self) -> String {
        self.labels.iter().map(|label| open_numbers(label)).sorted_unstable().dedup().join(", ")
    }

    /// Launches that are timed as one sequence.
    pub fn timed_launches(&self) -> usize {
        self.launches.len() * LEAST_LAUNCHES.div_ceil(self.launches.len())
    }

    /// The phase that times it: the launches in the plan's order, round and round, each after the one before: they go
    /// from layer to layer as a step does, so that none finds its operands where the last one left its own.
    pub fn timed(&self) -> Phase {
        let round = self.labels.iter().zip(&self.launches).cycle().take(self.timed_launches());
        let nodes = round.zip(0u32..).map(|((label, launch), index)| Node {
            label: label.clone(),
            work: Work::Launch(launch.clone()),
            dependencies: index.checked_sub(1).into_iter().collect(),
        });
        Phase { name: self.timed_as.clone(), nodes: nodes.collect(), cuts: Vec::new(), beside: false }
    }
}

/// Returns the phases of a training step.
pub fn step(plan: &Plan) -> Vec<String> {
    let pass = estimate::pass(plan).map(|(name, _)| name);
    [Some(MICRO), pass, Some(UPDATE)].into_iter().flatten().map(str::to_owned).collect()
}

/// Adds to the plan a phase for each group of launches of these phases. It needs no other kernels and no more memory
/// than before.
pub fn add(plan: &mut Plan, phases: &[impl AsRef<str>]) -> Vec<Group> {
    let groups = of(plan, phases);
    plan.phases.extend(groups.iter().map(Group::timed));
    groups
}

/// Like [`add`], for the phases of a training step.
pub fn add_step(plan: &mut Plan) -> Vec<Group> {
    let phases = step(plan);
    add(plan, &phases)
}

/// Groups the launches of these phases.
pub fn of(plan: &Plan, phases: &[impl AsRef<str>]) -> Vec<Group> {
    let mut groups = Vec::new();
    for phase in phases.iter().map(AsRef::as_ref) {
        let mut alike: BTreeMap<Alike, Vec<(String, Launch)>> = BTreeMap::new();
        for node in &plan.phase(phase).nodes {
            let Some(launch) = node.launch() else { continue };
            alike.entry((launch.code(), launch.shape())).or_default().push((node.label.clone(), launch.clone()));
        }
        for of_group in alike.into_values() {
            let (labels, launches) = of_group.into_iter().unzip();
            let timed_as = format!("bench.{}", groups.len());
            groups.push(Group { timed_as, phase: phase.to_owned(), launches, labels });
        }
    }
    groups
}

/// A label with `*` for each part that is a number.
fn open_numbers(label: &str) -> String {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    label.split('.').map(|part| if number(part) { "*" } else { part }).join(".")
}

#[cfg(test)]
mod tests {
    use precast_kernels::Arch;
    use precast_plan::keys;

    use super::super::tests::plan;
    use super::*;

    #[test]
    fn every_launch_of_a_step_is_in_one_group() {
        let before = plan(Arch::Sim);
        let mut plan = before.clone();
        let groups = add_step(&mut plan);
        for phase in step(&plan) {
            let of_phase = groups.iter().filter(|group| group.phase == phase);
            assert_eq!(of_phase.map(|group| group.launches.len()).sum::<usize>(), before.phase(&phase).nodes.len());
        }
        assert_eq!(keys(&plan), keys(&before));
        assert_eq!(plan.phases.len(), before.phases.len() + groups.len());
    }

    #[test]
    fn a_group_is_one_kernel_one_shape_and_a_chain() {
        let mut plan = plan(Arch::Sim);
        for group in add_step(&mut plan) {
            assert!(group.launches.iter().all(|launch| launch.shape() == group.launches[0].shape()));
            let timed = &plan.phase(&group.timed_as).nodes;
            assert!(timed.len() >= LEAST_LAUNCHES && timed.len() == group.timed_launches());
            assert!(timed.iter().skip(1).zip(0..).all(|(node, before)| node.dependencies == [before]));
        }
    }

    #[test]
    fn labels_stand_for_all_layers() {
        assert_eq!(open_numbers("student.layers.12.qkv"), "student.layers.*.qkv");
        assert_eq!(open_numbers("adamw"), "adamw");
    }
}
