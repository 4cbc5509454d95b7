//! Reads a model's shape from a Hugging Face `config.json`.

mod delta;
mod error;
mod experts;
mod fields;
mod layer;
mod model;
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
pub use scales::Multipliers;
pub use tower::text_config;
pub use unsupported::unread_fields;
