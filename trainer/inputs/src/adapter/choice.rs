//! The choice of an adapter: a new one, or one that is there.

use std::path::{Path, PathBuf};

use precast_plan::ModelConfig;
use serde::Serialize;

use super::{Adapter, Lora};
use crate::checkpoint::CheckpointError;

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
        if let Self::From { directory } = self { Some(directory) } else { None }
    }

    /// The adapter, of a model that is at a path; a new one by a seed.
    ///
    /// # Errors
    /// [`CheckpointError`] where it cannot be read.
    pub fn open(&self, model: (&Path, &ModelConfig), seed: u64) -> Result<Adapter, CheckpointError> {
        match self {
            Self::New(lora) => Adapter::new(model.1, lora, seed),
            Self::From { directory } => Adapter::open(directory, model),
        }
    }
}
