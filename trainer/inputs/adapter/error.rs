//! Why a directory is not read as an adapter.

use crate::inputs::checkpoint::CheckpointError;

/// An adapter that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// It is not there, does not fit the model, or asks for what is not computed here.
    #[error("{0}")]
    Wrong(String),
    /// A file of it is damaged, or holds what is not a finite number of a dtype that is read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}
