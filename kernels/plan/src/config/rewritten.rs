//! Models that are read as another one's `config.json` says.

use serde_json::Value;

use super::error::ConfigError;
use super::granite::granite_config;
use super::tower::text_config;

/// The `config.json` that a model is read by, in place of its own.
pub struct Rewritten {
    pub config: Value,
    /// Predicate of a note to people, which ends with the class of the configuration.
    pub note: &'static str,
}

/// Rewrites the `config.json` of a model that also sees images, or of a dense Granite 4.0; none of another model, which
/// is read by its own.
///
/// # Errors
/// [`ConfigError`] for a part that is missing, or for one that no such model has.
pub fn rewritten(whole: &Value) -> Result<Option<Rewritten>, ConfigError> {
    let text = text_config(whole)?.map(|config| (config, "images are left out: its text model is read,"));
    let found = match text {
        Some(text) => Some(text),
        None => granite_config(whole)?.map(|config| {
            (config, "gate and up are one tensor: it is read, and models and adapters of it are written, as")
        }),
    };
    Ok(found.map(|(config, note)| Rewritten { config, note }))
}
