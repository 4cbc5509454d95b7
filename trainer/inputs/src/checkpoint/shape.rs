//! A model without its weights.

use std::path::Path;

use precast_plan::{Formats, ModelConfig, rewritten};

use super::source::Source;
use super::{CheckpointError, missing};
use crate::base::impostors::read_text;

/// The `config.json` of a model without its weights: of a directory, a GGUF or an APR file, or the file itself.
///
/// # Errors
/// [`CheckpointError`] where there is none.
pub fn config_json(path: &Path) -> Result<String, CheckpointError> {
    if let Some((_, json)) = Source::of_file(path)? {
        return Ok(json.to_string());
    }
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    if !file.exists() {
        return Err(missing::model(path));
    }
    let text = read_text(&file).map_err(CheckpointError::io("read", &file))?;
    // What does not read is refused where it is followed.
    let other = serde_json::from_str(&text).ok().and_then(|json| rewritten(&json).ok().flatten());
    Ok(other.map_or(text, |other| other.config.to_string()))
}

/// A model without its weights: its shape, and in which formats its matrices are stored. A bare `config.json` stands
/// for a file in the mix of Q4_K_M.
///
/// # Errors
/// [`CheckpointError`] where there is none, or the configuration cannot be followed.
pub fn shape(path: &Path) -> Result<(ModelConfig, Formats), CheckpointError> {
    if !path.exists() {
        return Err(missing::shape(path));
    }
    missing::refuse_adapter_in(path)?;
    let config = ModelConfig::from_json(&config_json(path)?).map_err(|error| CheckpointError::of(path, error))?;
    let formats = match Source::of_file(path)? {
        Some((source, _)) => source.tensors().blocks(),
        None if path.is_file() => Formats::q4_k_m(&config),
        None => Formats::dense(),
    };
    Ok((config, formats))
}
