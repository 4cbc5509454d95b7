//! The models of a run.

use std::path::PathBuf;

use clap::Args;

use super::Change;

/// The models of a run: a teacher and its student, or a model alone.
#[derive(Args, Clone, Debug, Default)]
pub struct ModelOptions {
    /// The model to learn from: a Hugging Face directory, a .gguf or an .apr file
    #[arg(long, value_name = "PATH", add = Change::OnAnyHost)]
    pub teacher: Option<PathBuf>,
    /// The model to train: a Hugging Face directory, a .gguf or an .apr file (make one with `precast init`)
    #[arg(long, value_name = "PATH", add = Change::OnAnyHost)]
    pub student: Option<PathBuf>,
    /// The model to train without a teacher, in place of --teacher and --student: a Hugging Face directory, a .gguf or an .apr file
    #[arg(long, value_name = "PATH", add = Change::OnAnyHost)]
    pub model: Option<PathBuf>,
}
