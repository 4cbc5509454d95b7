//! The models of a run.

use std::path::PathBuf;

use clap::Args;

use super::Change;
use super::values::model;

/// Name of the student as its own teacher.
pub const SELF: &str = "self";
/// Name of an adapter's base as its teacher.
pub const BASE: &str = "base";

/// The models of a run: a teacher, or a cache of one, and its student; or a model alone.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct ModelOptions {
    /// Model to learn from: a directory, .gguf or .apr
    ///
    /// A directory holds Hugging Face's files: config.json, safetensors, tokenizer. ORGANIZATION/NAME, or
    /// ORGANIZATION/NAME@REVISION, is the one in the cache of `hf download`. `self` is the student by its present
    /// weights, and `base` the model of its adapter: rows then have a teacher_prompt.
    #[arg(long, value_name = "PATH", value_parser = model(), add = Change::OnAnyHost)]
    pub teacher: Option<PathBuf>,
    /// Cache that `precast cache` made of a teacher: it is read from there in place of being computed, and --teacher
    /// may be left out
    #[arg(long, value_name = "DIR", add = Change::OnAnyHost)]
    pub teacher_cache: Option<PathBuf>,
    /// Model to train, as --teacher; `precast init` makes one
    #[arg(long, value_name = "PATH", value_parser = model(), add = Change::OnAnyHost)]
    pub student: Option<PathBuf>,
    /// Model to train without a teacher, as --teacher
    #[arg(long, value_name = "PATH", value_parser = model(), add = Change::OnAnyHost)]
    pub model: Option<PathBuf>,
}
