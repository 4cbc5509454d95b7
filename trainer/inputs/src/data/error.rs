//! Errors of data.

use std::fmt::Display;
use std::path::Path;

/// Data that cannot be used: which file, and why.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct DataError {
    text: String,
    /// True where a row is why, which a pass over the data finds.
    is_of_row: bool,
}

impl DataError {
    pub(super) fn new(text: impl Display) -> Self {
        Self { text: text.to_string(), is_of_row: false }
    }

    /// The error for a row, or a token, that cannot be used.
    pub(super) fn of_row(text: impl Display) -> Self {
        Self { is_of_row: true, ..Self::new(text) }
    }

    /// Adds, for a run that has begun, how it could have been known before.
    pub(super) fn after_start(self) -> Self {
        let remedy = if self.is_of_row { ". `--dry-run` reads all rows before a run" } else { "" };
        Self { text: self.text + remedy, ..self }
    }

    /// The error for a file that cannot be used.
    pub(super) fn of(path: &Path, reason: impl Display) -> Self {
        Self::new(format_args!("{}: {reason}", path.display()))
    }

    /// The error for a file of which something is so; the words after its path.
    pub(super) fn file(path: &Path, is: impl Display) -> Self {
        Self::new(format_args!("{} {is}", path.display()))
    }

    /// The error for a file that cannot be read.
    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        let check = if path.extension() == Some("gz".as_ref()) { "; gzip -t checks it" } else { "" };
        move |error| Self::new(format_args!("cannot read {}: {error}{check}", path.display()))
    }

    /// The error for rows of which so many cannot be used, this one first.
    pub fn first_of(self, refused: usize, all: usize) -> Self {
        Self::new(format_args!("{refused} of {all} rows cannot be used: {self}"))
    }

    /// The error for text, and no tokenizer to read it with.
    pub fn no_tokenizer(path: &Path) -> Self {
        Self::file(
            path,
            "is text and the model has no tokenizer.json: put one beside its config.json, or give .bin token ids",
        )
    }

    /// The error for a tokenizer that fails.
    pub fn tokenizer(path: &Path) -> impl Fn(String) -> Self {
        move |reason| Self::of(path, format_args!("the tokenizer fails: {reason}"))
    }

    /// The error for a token, counted from 0, that is not in a vocabulary of so many.
    pub fn vocabulary(path: &Path, index: u64, id: u32, vocab: u32) -> Self {
        let end = format!("the model's vocabulary ends at {vocab}: tokenize for this model");
        Self::of_row(format_args!("{}: token {index} has id {id}, {end}", path.display()))
    }

    /// The error for data of a student that teaches itself, of which it reads the same as its teacher.
    pub fn untaught(path: &Path) -> Self {
        Self::file(
            path,
            "has no teacher_prompt, so teacher and student read the same by the same weights, and nothing is to be \
            learnt: give rows with prompt, completion and teacher_prompt, or another --teacher",
        )
    }

    /// The error for a file of which nothing says which of several teachers teaches it.
    pub fn of_no_teacher(path: &Path, names: &[String]) -> Self {
        let (name, all) = (names.first().map_or("NAME", String::as_str), names.join(", "));
        Self::file(
            path,
            format_args!(
                "has no teacher, of {all}: give it as {}@{name} or with =SHARE@{name}, or a column `teacher` to rows \
                that are sequences of their own",
                path.display()
            ),
        )
    }

    /// The error for a step, counted from 1, of which every token is masked.
    pub fn nothing_counted(step: u64) -> Self {
        Self::new(format_args!("step {step} has no token to predict: every target of its batches is masked"))
    }
}
