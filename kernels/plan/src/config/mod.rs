//! Reads a model's shape from a Hugging Face `config.json`.

mod error;
mod fields;
mod model;
mod rope;
mod unsupported;

pub use error::ConfigError;
pub use model::ModelConfig;
pub use unsupported::unread_fields;
