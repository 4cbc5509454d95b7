//! Where a model's tensors lie: a Hugging Face directory, or a single file.

use std::path::Path;

use super::apr::{self, Apr};
use super::file::WeightFile;
use super::gguf::{self, Gguf};
use super::single_file::SingleFile;
use super::store::Tensors;
use super::{CheckpointError, Fault};

pub(super) enum Source {
    HuggingFace(Tensors),
    SingleFile(Box<dyn SingleFile>),
}

impl Source {
    /// A GGUF or APR file, and what its `config.json` would be; none where it is neither.
    pub(super) fn of_file(path: &Path) -> Result<Option<(Self, serde_json::Value)>, CheckpointError> {
        let magic = WeightFile::open(path).and_then(|file| file.head(4)).unwrap_or_default();
        let read = || -> Result<Option<(Self, serde_json::Value)>, Fault> {
            let file: Box<dyn SingleFile> = match magic.first_chunk() {
                Some(&gguf::MAGIC) => Box::new(Gguf::read(path)?),
                Some(&apr::MAGIC) => Box::new(Apr::read(path)?),
                _ => return Ok(None),
            };
            let json = file.config()?;
            Ok(Some((Self::SingleFile(file), json)))
        };
        read().map_err(|fault| fault.at(path))
    }

    pub(super) fn tensors(&self) -> &Tensors {
        match self {
            Self::HuggingFace(tensors) => tensors,
            Self::SingleFile(file) => file.tensors(),
        }
    }

    pub(super) fn tensors_mut(&mut self) -> &mut Tensors {
        match self {
            Self::HuggingFace(tensors) => tensors,
            Self::SingleFile(file) => file.tensors_mut(),
        }
    }
}
