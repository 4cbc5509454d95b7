//! Reads a model's shape from a Hugging Face `config.json`.

mod delta;
mod error;
mod experts;
mod fields;
mod granite;
mod layer;
mod model;
mod rewritten;
mod rope;
mod scales;
mod tower;
mod unsupported;

pub use delta::DeltaHeads;
pub use error::ConfigError;
pub use experts::ExpertsConfig;
pub use fields::pads_by_default;
pub use layer::{LayerConfig, LayerKind, RopeConfig};
pub use model::ModelConfig;
pub use rewritten::{Rewritten, rewritten};
pub use scales::Multipliers;
pub use unsupported::unread_fields;
