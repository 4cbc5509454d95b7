//! Why a teacher cache cannot be filled or read.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use precast_fatbins::{Digest, SignatureError};
use precast_plan::Precision;

use super::compact::Compact;
use super::key::Key;
use super::layout::FORMAT;
use crate::base::difference::Difference;
use crate::base::io::IoError;

/// A teacher cache that cannot be filled, opened or read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum CacheError {
    /// A directory that is to be filled holds something else.
    #[error("{} is not empty and no teacher cache: nothing was changed. Move it away, or choose another \
        --out", .0.display())]
    NotACache(PathBuf),
    /// Another process fills it.
    #[error(
        "{} is in use by another process{}: wait for it, or choose another --out",
        path.display(),
        pid.map(|pid| format!(", {pid}")).unwrap_or_default()
    )]
    Busy { path: PathBuf, pid: Option<u32> },
    /// It is filled from something else.
    #[error(
        "{} is being filled from something else:{}\nNothing was changed. Fill it from the same, or choose another \
        --out",
        path.display(),
        differences.iter().map(|difference| format!("\n  {difference}")).collect::<String>()
    )]
    Different { path: PathBuf, differences: Vec<Difference> },
    /// Nothing is left to fill.
    #[error("{} is a complete teacher cache: nothing was changed. Remove it, or choose another --out", .0.display())]
    Complete(PathBuf),
    /// It is no longer the directory that this process has claimed.
    #[error("{} was moved or removed while it was filled: run the same `precast cache` again, with that as \
        --out", .0.display())]
    Gone(PathBuf),
    /// Sequences that were counted are not there when they are to be computed.
    #[error(
        "the data were changed while they were read: {lost} of their sequences are gone, and {} stays incomplete. \
        Restore the data and run \
         the same `precast cache` again, or choose another --out",
        path.display()
    )]
    DataChanged { path: PathBuf, lost: u64 },
    /// There is none.
    #[error("{} is no teacher cache, as it has no cache.json: `precast cache` makes one", .0.display())]
    Missing(PathBuf),
    /// Its filling has not ended.
    #[error(
        "{} is incomplete, with {sequences} sequences so far: run the same `precast cache` again, which continues it",
        path.display()
    )]
    Incomplete { path: PathBuf, sequences: u64 },
    /// It is of another version.
    #[error("{} has format {format}, expected {FORMAT}: remove the cache and make it again, with `precast \
        cache`", path.display())]
    Format { path: PathBuf, format: u32 },
    /// A file is not as it was written.
    #[error("{}: {what}: the file is damaged. Remove the cache and make it again, with `precast \
        cache`", path.display())]
    Damaged { path: PathBuf, what: String },
    /// No trusted key has signed it.
    #[error("{}: {error}", path.display())]
    Signature { path: PathBuf, error: SignatureError },
    /// Rows of a sequence cannot be read.
    #[error("{error}: {place}")]
    Rows { place: String, error: IoError },
    /// It is of runs with another value of an option: this one's value is `run`, which reads a cache of `is`.
    #[error(
        "{} was made with {option} {was}, and this run uses {run}: give {option} {was}, or make a cache for it: \
         `precast cache {from} DATA {option} {is} --out CACHE`",
        path.display()
    )]
    OtherOption { path: PathBuf, from: &'static str, option: &'static str, was: String, is: String, run: String },
    /// Others computed it at another temperature than a run's.
    #[error(
        "{} has log-probabilities that others computed at temperature {was}, and this run uses {run}: give \
         --temperature {was}, or have them computed at temperature {run}, and make a cache of those: \
         `precast cache --from DATA --temperature {run} --student STUDENT --out CACHE`",
        path.display()
    )]
    OtherTemperature { path: PathBuf, was: String, run: String },
    /// It knows the tokens of another vocabulary than a student's.
    #[error(
        "{} keeps probabilities of {} tokens, and the student chooses among {is}: make a cache for it: \
         `precast cache {from} DATA{} --out CACHE`",
        path.display(),
        was.student_vocab,
        was.options()
    )]
    OtherVocabulary { path: PathBuf, from: &'static str, was: Compact, is: u32 },
    /// It is of another teacher than the one that is named.
    #[error(
        "{} was made of a teacher with the digest {was}, and {} has {is}: leave --teacher out, or make a cache of \
        that one, with `precast cache`",
        path.display(),
        teacher.display()
    )]
    OtherTeacher { path: PathBuf, teacher: PathBuf, was: Digest, is: Digest },
    /// It lacks training data of a run.
    #[error(
        "{} lacks sequence {number} of the training data, counted from 1: they were made of other rows, or rows read \
         otherwise (another --data-field, tokenizer, chat template or --packing documents). Make a cache of these: \
         `precast cache {from} {} --out CACHE`",
        path.display(),
        data.join(" ")
    )]
    LacksData { path: PathBuf, from: &'static str, number: u64, data: Vec<String> },
    /// It lacks held-out data of a run.
    #[error(
        "{} lacks sequence {number} of the held-out data, counted from 1. Make a cache of both, with \
         `precast cache {from} {} --out CACHE`, or leave --eval-data out",
        path.display(),
        data.join(" ")
    )]
    LacksHeldOut { path: PathBuf, from: String, number: u64, data: Vec<String> },
    /// It lacks data that a model is measured on.
    #[error(
        "{} lacks sequence {number} of the data, counted from 1. Make a cache of them: `precast cache --teacher \
        TEACHER \
         --student STUDENT --data {} --seq-len {seq_len} --precision {precision} --out CACHE`",
        path.display(),
        data.join(" ")
    )]
    LacksMeasured { path: PathBuf, number: u64, data: Vec<String>, seq_len: u32, precision: Precision },
    /// There is too little room for it.
    #[error(
        "{} has {free} bytes free and the cache takes {needed} more: nothing was written. Free space, or choose \
        another --out",
        path.display()
    )]
    Space { path: PathBuf, needed: u64, free: u64 },
    /// It lacks a sequence.
    #[error(
        "{} lacks sequence {key:?}: it was made from other data, or with another --seq-len. Make one of this data, \
        with \
         `precast cache`",
        path.display()
    )]
    NoSequence { path: PathBuf, key: Key },
    /// A file cannot be read or written.
    Io(#[from] IoError),
}

impl CacheError {
    /// Names what the system was asked for.
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = IoError::of(what, path);
        move |error| named(error).into()
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    /// Tells a file that is not there, is no file or ends early from one that cannot be read.
    pub(super) fn reading(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                Self::damaged(path, error.to_string())
            }
            _ => Self::io("read", path)(error),
        }
    }
}
