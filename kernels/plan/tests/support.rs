//! Models, recipes and plans that tests share.

pub(crate) use std::collections::{BTreeMap, BTreeSet};

pub(crate) use precast_core::plan::{Launch, Phase, Touch};
pub(crate) use precast_kernels::{Access, Arch, Block, Dtype, Format, KERNELS, Key, KeyVariant};
pub(crate) use precast_plan::guard::GUARD;
pub(crate) use precast_plan::staged::CERTIFY;
pub(crate) use precast_plan::training::{CAST, CLEAR, GATHER, LAST, MASTERS, MICRO, TEACHER, UPDATE, of_teacher};
pub(crate) use precast_plan::*;

/// A recipe of distillation, which tests change.
pub(crate) const RECIPE: Recipe = Recipe {
    seq_len: 64,
    precision: Precision::Bf16,
    objective: Objective::Distill { alpha: 0.5, temperature: 2.0, beta: 0.0 },
    weight_decay: 0.01,
    clip: 1.0,
    ..Recipe::PLAIN
};

/// Returns a built-in model.
pub(crate) fn config(name: &str) -> ModelConfig {
    let path = format!("{}/../../aot/models/{name}.json", env!("CARGO_MANIFEST_DIR"));
    ModelConfig::from_json(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns a built-in model with its first layers alone: blocks are alike.
pub(crate) fn first_layers(layers: u32, name: &str) -> ModelConfig {
    config(name).cut(layers)
}

/// Plans a step without a teacher.
pub(crate) fn alone<'a>(student: impl Into<Student<'a>>, recipe: &Recipe, arch: Arch) -> TrainingPlan {
    TrainingPlan::new(TrainingRequest::new(student, recipe, arch)).unwrap()
}

/// Plans a step with a teacher.
pub(crate) fn taught<'a>(
    teacher: impl Into<Teacher<'a>>,
    student: impl Into<Student<'a>>,
    recipe: &Recipe,
    arch: Arch,
) -> TrainingPlan {
    TrainingPlan::new(TrainingRequest::new(student, recipe, arch).taught_by(Some(teacher))).unwrap()
}

/// Returns a row of a plan's table of memory, if it has it.
pub(crate) fn row(plan: &Plan, category: Category) -> Option<u64> {
    MemoryTable::of(plan).rows.iter().find(|row| row.category == category).map(|row| row.bytes)
}

/// Returns the keys that a phase launches.
pub(crate) fn keys_of(plan: &Plan, phase: &str) -> BTreeSet<String> {
    plan.phase(phase).launches().map(|launch| launch.key.to_string()).collect()
}

/// Counts the launches in a phase, by the first part of their labels and a part of their keys.
pub(crate) fn count(plan: &Plan, phase: &str, of: &str, key: &str) -> u32 {
    let nodes = plan.phase(phase).nodes.iter().filter(|node| node.label.starts_with(of));
    nodes.filter(|node| node.launch().is_some_and(|launch| launch.key.text().contains(key))).count() as u32
}

/// Asserts that a build has every kernel of a plan, and that weights which are read ahead are there.
pub(crate) fn assert_covered(built: &BTreeSet<KeyVariant>, plan: &Plan) {
    let missing: Vec<_> = keys(plan).into_iter().filter(|pair| !built.contains(pair)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    plan.phases.iter().for_each(weights_are_there);
}

/// Forward GEMMs read weights before the launch in front has ended, where both overlap: none that overlaps writes them.
fn weights_are_there(phase: &Phase) {
    let mut written: Vec<(Touch, &Launch)> = Vec::new();
    for (node, launch) in phase.nodes.iter().filter_map(|node| Some((node, node.launch()?))) {
        let touches = node.touches();
        let reads = touches.iter().filter(|touch| touch.name == "w" && touch.access == Access::Read);
        for weights in reads.filter(|_| ["gemm.fwd", "gemm.swiglu"].contains(&launch.key.op())) {
            let overlaps = |(touch, _): &&(Touch, &Launch)| {
                touch.buffer == weights.buffer
                    && touch.offset < weights.offset + weights.bytes
                    && weights.offset < touch.offset + touch.bytes
            };
            let Some((_, writer)) = written.iter().rev().find(overlaps) else { continue };
            let variant = KERNELS.select(&writer.key, &writer.params, Arch::Sm90a);
            let source = KeyVariant { key: writer.key.clone(), variant }.source();
            assert!(!source.mentions("griddepcontrol"), "{} reads what {} wrote", launch.key, writer.key);
        }
        written.extend(touches.into_iter().filter(|touch| touch.access != Access::Read).map(|touch| (touch, launch)));
    }
}

/// Returns all that each node waits for, transitively.
pub(crate) fn waited_for(nodes: &[Node]) -> Vec<Vec<bool>> {
    let mut all: Vec<Vec<bool>> = Vec::new();
    for node in nodes {
        let mut own = vec![false; nodes.len()];
        for needed in node.dependencies.iter().map(|needed| *needed as usize) {
            own[needed] = true;
            own.iter_mut().zip(&all[needed]).for_each(|(own, needed)| *own |= needed);
        }
        all.push(own);
    }
    all
}
