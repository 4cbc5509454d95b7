//! Models, recipes and plans that tests share.

pub(crate) use std::collections::{BTreeMap, BTreeSet};

pub(crate) use precast_kernels::{Access, Arch, Block, Dtype, Format, Key, KeyVariant};
pub(crate) use precast_plan::guard::GUARD;
pub(crate) use precast_plan::training::{CAST, CLEAR, GATHER, LAST, MICRO, TEACHER, UPDATE};
pub(crate) use precast_plan::*;

/// A recipe of distillation, which tests change.
pub(crate) const RECIPE: Recipe = Recipe {
    batch: 1,
    seq_len: 64,
    precision: Precision::Bf16,
    objective: Objective::Distill { alpha: 0.5, temperature: 2.0, beta: 0.0 },
    weight_decay: 0.01,
    clip: 1.0,
    recompute: Recompute::None,
    gemm: Gemm::Bundle,
};

/// Returns a built-in model.
pub(crate) fn config(name: &str) -> ModelConfig {
    let path = format!("{}/../../aot/models/{name}.json", env!("CARGO_MANIFEST_DIR"));
    ModelConfig::from_json(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns a built-in model with its first layers alone: blocks are alike.
pub(crate) fn first_layers(layers: u32, name: &str) -> ModelConfig {
    ModelConfig { layers, ..config(name) }
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
