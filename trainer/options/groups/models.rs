//! The models of a run.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Change;
use super::values::{model, teacher, teacher_cache};
use crate::options::TeacherSource;

/// The models of a run: a teacher, or a cache of one, and its student, several teachers by their names; or a model
/// alone.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct ModelOptions {
    /// Model to learn from: a directory, .gguf or .apr
    ///
    /// A directory holds Hugging Face's files: config.json, safetensors, tokenizer. ORGANIZATION/NAME, or
    /// ORGANIZATION/NAME@REVISION, is the one in the cache of `hf download`. `self` is the student by its present
    /// weights, and `base` the model of its adapter: rows then have a teacher_prompt. NAME=PATH, repeated, gives
    /// several, each of which teaches the data that --data PATH@NAME or a column `teacher` gives it.
    #[arg(long, value_name = "PATH", value_parser = teacher(), value_hint = ValueHint::AnyPath,
          add = Change::OnAnyHost)]
    pub teacher: Vec<TeacherSource>,
    /// Cache that `precast cache` made of a teacher: it is read from there in place of being computed, and --teacher
    /// may be left out. NAME=DIR makes it one of several
    #[arg(long, value_name = "DIR", value_parser = teacher_cache(), value_hint = ValueHint::DirPath,
          add = Change::OnAnyHost)]
    pub teacher_cache: Vec<TeacherSource>,
    /// Model to train, as --teacher; `precast init` makes one
    #[arg(long, value_name = "PATH", value_parser = model(), add = Change::OnAnyHost)]
    pub student: Option<PathBuf>,
    /// Model to train without a teacher, as --teacher
    #[arg(long, value_name = "PATH", value_parser = model(), add = Change::OnAnyHost)]
    pub model: Option<PathBuf>,
}

impl ModelOptions {
    /// True if teachers have names, as several must.
    pub(crate) fn has_named_teachers(&self) -> bool {
        self.teacher.iter().chain(&self.teacher_cache).any(|teacher| teacher.name.is_some())
    }
}
