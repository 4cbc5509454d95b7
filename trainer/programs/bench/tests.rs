//! A plan that unit tests share.

use precast_kernels::Arch;
use precast_plan::{ModelConfig, Objective, Plan, Precision, Recipe, TrainingPlan, TrainingRequest};

/// A small training step.
pub fn plan(arch: Arch) -> Plan {
    let json = include_str!("../../../aot/models/smollm2-135m.json");
    let config = ModelConfig::from_json(json).unwrap();
    let recipe = Recipe {
        batch: 2,
        seq_len: 64,
        precision: Precision::Bf16,
        objective: Objective::Distill { alpha: 0.5, temperature: 2.0, beta: 0.0 },
        weight_decay: 0.01,
        clip: 1.0,
        ..Recipe::PLAIN
    };
    TrainingPlan::new(TrainingRequest::new(&config, &recipe, arch).taught_by(Some(&config))).unwrap().plan
}
