//! The data that a run reads, and its sources' shares of the tokens.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::groups::{Completions, OnPolicy, ShapeOptions, TextOptions};
use super::usage::UsageError;
use crate::inputs::data::{DataSource, Packing};

/// Shares of tokens: their sum and ratios are numbers.
const SHARES: RangeInclusive<f64> = 1e-6..=1e6;

/// Data to train on, and to hold out.
pub struct DataRequest<'a> {
    pub sources: Vec<DataSource>,
    pub held_out: Vec<DataSource>,
    /// Names of the teachers by their numbers, where they have any.
    pub teachers: Vec<String>,
    pub text: &'a TextOptions,
    pub shape: ShapeOptions,
    /// That which is asked for.
    pub packing: Option<Packing>,
    /// Numbers of teachers of whose rows likely tokens are read, too: then positions without any do not count.
    pub likely: Vec<u32>,
    pub teacher_prompts: TeacherPrompts,
    /// Training on completions of prompts; none where sequences are trained on as they are.
    pub on_policy: Option<OnPolicy>,
    /// How the student completes prompts, where it does.
    pub completions: Option<Completions>,
}

/// Treatment of prompts that rows have for a teacher in place of the student's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TeacherPrompts {
    /// There is no teacher: they are a column that nothing reads.
    Unread,
    /// They are read. Those of teachers that are cached, by their numbers, are refused: a cache has no place for them.
    Read { cached: Vec<u32> },
}

/// Returns the sources of training data, each with its share of the tokens, or none with one. The number of steps is
/// `open` where
/// --epochs gives it.
///
/// # Errors
/// [`UsageError`] of shares that are not above 0, that only some have, or beside --epochs.
pub fn sources(data: &[PathBuf], open: bool) -> Result<Vec<DataSource>, UsageError> {
    let sources: Vec<DataSource> = data.iter().map(|named| DataSource::of(named)).collect();
    let shared = || sources.iter().filter_map(|DataSource { path, share, .. }| Some((path.display(), (*share)?)));
    let Some((path, share)) = shared().next() else { return Ok(sources) };
    let is_wrong = |source: &DataSource| source.share.is_some_and(|share| !SHARES.contains(&share));
    // As it was given: a number may have hundreds of digits.
    if let Some((named, _)) = data.iter().zip(&sources).find(|(_, source)| is_wrong(source)) {
        let (named, least, most) = (named.display(), SHARES.start(), SHARES.end());
        return Err(UsageError(format!("--data {named}: a share is a number above 0, from {least:e} to {most:e}")));
    }
    if let Some(other) = sources.iter().find(|source| source.share.is_none()) {
        let other = other.path.display();
        return Err(UsageError(format!(
            "--data {path}={share} has a share of the tokens and --data {other} has none: give each one a share, as \
            {other}={share}, \
             or none"
        )));
    }
    if open {
        return Err(UsageError(format!(
            "--epochs counts passes over all data, and with shares (--data {path}={share}) each source is read as \
            often as its \
             share asks for: give --steps in place of --epochs"
        )));
    }
    Ok(sources)
}
