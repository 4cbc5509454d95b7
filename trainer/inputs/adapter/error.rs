//! Why a directory is not read as an adapter.

use std::path::PathBuf;

use crate::inputs::checkpoint::CheckpointError;

/// What to do with an adapter that does more than `W x + scale B A x`.
pub(super) const MERGE_ELSEWHERE: &str =
    "Merge it into its model with PEFT (merge_and_unload) and train a new adapter on that";

/// An adapter that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// There is something else at the path, or nothing.
    #[error(
        "{} is not an adapter: {reason}. Expected a PEFT directory: adapter_config.json, adapter_model.safetensors",
        path.display()
    )]
    NotAnAdapter {
        path: PathBuf,
        /// What is there, or is not.
        reason: String,
    },
    /// `adapter_config.json` does not read.
    #[error("{}: {reason}: save the adapter again with PEFT (save_pretrained)", path.display())]
    Json { path: PathBuf, reason: String },
    /// `adapter_config.json` asks for what is not computed here.
    #[error("{}: {setting} {reason}. {remedy}", path.display())]
    Setting {
        path: PathBuf,
        /// Its name, with its value where that says more.
        setting: String,
        /// Why it is not followed.
        reason: String,
        remedy: String,
    },
    /// Tensors are not those that `adapter_config.json` and the model ask for.
    #[error(
        "{} does not hold the adapter that its adapter_config.json describes, for the model {}:\n{}\n\
         Name the model that the adapter was trained on, or save the adapter again with PEFT (save_pretrained)",
        path.display(), model.display(), problems.join("\n")
    )]
    Tensors {
        path: PathBuf,
        model: PathBuf,
        /// One line each.
        problems: Vec<String>,
    },
    /// A file of it is damaged, or holds what is not a finite number of a dtype that is read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}
