//! Why a model cannot be read or written.

use std::path::PathBuf;

use precast_plan::ConfigError;

use super::fault::FileError;
use super::finite::NotFinite;
use crate::base::impostors::Disguise;

/// A model that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A parameter that a GGUF file has no tensor for.
    #[error(
        "cannot write {} as GGUF: files of architecture {family} have no tensor for {tensor}; \
         leave out --format for a Hugging Face directory",
        path.display()
    )]
    NoGgufName {
        path: PathBuf,
        /// Its Hugging Face name.
        tensor: String,
        /// As GGUF files call it.
        family: &'static str,
    },
    /// There is nothing at the path.
    #[error(
        "no model at {}: expected a Hugging Face directory (config.json, model.safetensors), a .gguf or an .apr file{}",
        path.display(),
        id.as_deref().map(download).unwrap_or_default()
    )]
    NotFound {
        path: PathBuf,
        /// The Hugging Face id that the path may be meant as.
        id: Option<String>,
    },
    /// There is something else at the path.
    #[error("{} is not a model: {reason}", path.display())]
    NotAModel {
        path: PathBuf,
        /// What is there, or is not.
        reason: String,
    },
    /// A file is not what its name says.
    #[error("{} {what}", path.display())]
    Disguised {
        path: PathBuf,
        /// What it is.
        what: Disguise,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: std::io::Error },
    /// The configuration cannot be followed.
    #[error("{}: {error}", path.display())]
    Config { path: PathBuf, error: ConfigError },
    /// A JSON file does not read.
    #[error("{}: {reason}", path.display())]
    Json { path: PathBuf, reason: String },
    /// A safetensors file is damaged.
    #[error("{}: damaged safetensors file ({error}): fetch it again", path.display())]
    Safetensors { path: PathBuf, error: safetensors::SafeTensorError },
    /// An index and the files it names contradict each other.
    #[error("{} does not match the files beside it:\n{}", path.display(), problems.join("\n"))]
    Index {
        path: PathBuf,
        /// One line each.
        problems: Vec<String>,
    },
    /// A GGUF or APR file is damaged or unsupported.
    #[error(transparent)]
    File(#[from] FileError),
    /// Tensors the configuration asks for are missing or have another shape: all of them.
    #[error("{} does not hold the model its config.json describes:\n{}", path.display(), problems.join("\n"))]
    Tensors {
        path: PathBuf,
        /// One line each.
        problems: Vec<String>,
    },
    /// A tensor is stored in a way that is not read.
    #[error("{}: {reason}", path.display())]
    Unread { path: PathBuf, reason: String },
    /// A weight is NaN or infinite.
    #[error("{}: {what}: the file is damaged or its training diverged: fetch or convert the model again", path.display())]
    NotFinite { path: PathBuf, what: NotFinite },
    /// A tensor that nothing can be without holds nothing.
    #[error("{}: tensor {tensor} is wholly zero, so that nothing trains and nothing is predicted: fetch or convert the model again", path.display())]
    Zero { path: PathBuf, tensor: String },
    /// A weight to be written is NaN or infinite.
    #[error("{} is not written: {what}", path.display())]
    WouldNotBeFinite { path: PathBuf, what: NotFinite },
    /// A tokenizer does not read or write.
    #[error("{}: {reason}", path.display())]
    Tokenizer { path: PathBuf, reason: String },
    /// The disk has less room than the model takes.
    #[error("{} has {free} bytes free and {what} takes {needed}: free some, or choose another --out", path.display())]
    Space {
        path: PathBuf,
        /// What is to be written.
        what: &'static str,
        needed: u64,
        free: u64,
    },
}

impl CheckpointError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { what, path, error }
    }
}

/// What to say of a path that may be meant as a Hugging Face id.
fn download(id: &str) -> String {
    let directory = id.split_once('/').map_or(id, |(_, name)| name);
    format!(
        ".\nModels are not downloaded by name. If {id} is one at Hugging Face: hf download {id} --local-dir {directory}\n\
         and give {directory} instead"
    )
}
