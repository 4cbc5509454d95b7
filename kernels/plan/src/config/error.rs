//! Configurations that are refused.

use crate::family::Family;

/// A configuration that no plan supports.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, or a field is missing or of the wrong type.
    #[error("config.json does not read as a model configuration: {0}")]
    Json(#[from] serde_json::Error),
    /// A model family without lowering.
    #[error(
        "unsupported architecture `{name}` of model_type {model_type}: supported are {supported}",
        supported = Family::list(|_| true, |family| family.class)
    )]
    Architecture { name: String, model_type: String },
    /// A feature that would change the mathematics.
    #[error("unsupported {field} = {value}: {reason}")]
    Unsupported {
        /// Field of config.json.
        field: String,
        value: String,
        /// Reason, and the remedy if there is one.
        reason: &'static str,
    },
    /// Numbers that contradict each other.
    #[error("inconsistent config.json: {0}")]
    Inconsistent(String),
}
