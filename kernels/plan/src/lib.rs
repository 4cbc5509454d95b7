//! A model configuration lowered to a plan: buffers and launches of a training step, as data.
//!
//! The same value is enumerated when a bundle is built, checked when a run starts, and executed step by
//! step. Nothing here touches a GPU or a file.

pub mod arena;
pub mod backward;
mod bounds;
pub mod config;
pub mod enumerate;
pub mod estimate;
pub mod evaluation;
pub mod forward;
pub mod head;
pub mod memory;
pub mod parameters;
pub mod plan;
pub mod recipe;
pub mod rope;
pub mod training;
mod unsupported;

pub use config::{Architecture, ConfigError, ModelConfig};
pub use enumerate::{KeyVariant, build_keys, keys};
pub use evaluation::EvaluationPlan;
pub use memory::{Category, MemoryTable};
pub use parameters::{Parameter, Parameters};
pub use plan::{Buffer, BufferId, Builder, Launch, Phase, Plan, Tensor};
pub use recipe::{PlanError, Precision, Recipe};
pub use training::TrainingPlan;
