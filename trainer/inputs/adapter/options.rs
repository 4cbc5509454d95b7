//! What a run's options say of the adapter that trains.

use std::path::{Path, PathBuf};

use precast_plan::ModelConfig;
use serde::Serialize;

use super::{Adapter, AdapterError, Lora};

/// What trains while the student stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AdapterChoice {
    /// A new adapter.
    New(Lora),
    /// One that is there, in a PEFT directory.
    From {
        #[serde(rename = "adapter", serialize_with = "crate::base::record_text::path")]
        directory: PathBuf,
    },
}

impl AdapterChoice {
    /// The directory that it is read from.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::New(_) => None,
            Self::From { directory } => Some(directory),
        }
    }

    /// The adapter, of a model that is at a path; a new one by a seed.
    ///
    /// # Errors
    /// [`AdapterError`] where it cannot be read.
    pub fn open(&self, model: (&Path, &ModelConfig), seed: u64) -> Result<Adapter, AdapterError> {
        match self {
            Self::New(lora) => Ok(Adapter::new(model.1, lora, seed)),
            Self::From { directory } => Adapter::open(directory, model),
        }
    }
}
