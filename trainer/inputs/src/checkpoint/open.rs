//! Opens a model on disk.

use std::path::Path;
use std::sync::OnceLock;

use precast_plan::{ModelConfig, Parameter, Parameters, unread_fields};

use super::source::Source;
use super::store::Tensors;
use super::zero::Zeros;
use super::{Checkpoint, CheckpointError, huggingface, missing, tensors};
use crate::base::notes::note;

impl Checkpoint {
    /// Opens a Hugging Face directory, a GGUF or an APR file and checks that it holds every tensor of its
    /// configuration in the right shape. No weights are read.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::open_with(path, |config| Parameters::new(config).list)
    }

    /// Like [`Self::open`], of a directory that holds of a model's weights its head alone, or none.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn open_without_layers(path: &Path, has_head: bool) -> Result<Self, CheckpointError> {
        let head = |config: &ModelConfig| has_head.then(|| Parameter::head(config));
        Self::open_with(path, |config| head(config).into_iter().collect())
    }

    fn open_with(path: &Path, expected: impl FnOnce(&ModelConfig) -> Vec<Parameter>) -> Result<Self, CheckpointError> {
        let (mut source, json, generation) = match Source::of_file(path)? {
            Some((single, json)) => (single, json, serde_json::Value::Null),
            None if path.is_dir() => {
                let (tensors, json) = Tensors::open(path)?;
                (Source::HuggingFace(tensors), json, huggingface::generation_config(path)?)
            }
            None => return Err(missing::model(path)),
        };
        let config_path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let config = ModelConfig::from_json(&json.to_string());
        let config = config.map_err(|error| CheckpointError::of(&config_path, error))?;
        if let (Source::HuggingFace(_), unread @ [_, ..]) = (&source, &unread_fields(&json, config.family)[..]) {
            let (path, family, fields) = (config_path.display(), config.family, unread.join(", "));
            note(format_args!("{path}: not read, and in transformers no fields of {family}: {fields}"));
        }
        if config.tied {
            source.tensors_mut().tie();
        }
        let (tokenizer, taken_template, zeros) = (OnceLock::new(), OnceLock::new(), Zeros::default());
        let (path, stop_token) = (path.to_owned(), OnceLock::new());
        let checkpoint = Self { path, source, config, json, generation, tokenizer, taken_template, stop_token, zeros };
        tensors::check(&checkpoint, &expected(checkpoint.config()))?;
        Ok(checkpoint)
    }
}
