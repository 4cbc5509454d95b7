//! Errors for a cache that does not fit the run that opened it.

use std::path::{Path, PathBuf};

use precast_core::shell::quoted;
use precast_fatbins::Digest;
use precast_plan::Precision;

use super::cache::TeacherCache;
use super::compact::Compact;
use super::error::CacheError;
use super::filling::Filling;
use super::key::Key;
use super::layout::{HIDDEN, INDEX};
use super::manifest::Made;

impl TeacherCache {
    /// Checks that it is of a precision and of sequences of so many tokens.
    ///
    /// # Errors
    /// [`CacheError::OtherOption`].
    pub fn check_shape(&self, precision: Precision, seq_len: u32) -> Result<(), CacheError> {
        let Made { precision: of_cache, seq_len: length, compact, filled_by, .. } = &self.manifest().made;
        let options = [
            ("--precision", [*of_cache, precision.exact(), precision].map(|value| value.to_string())),
            ("--seq-len", [*length, seq_len, seq_len].map(|value| value.to_string())),
        ];
        // Log-probabilities of others are f32 in every run.
        let compared = options.into_iter().skip(filled_by.is_none().into());
        match compared.into_iter().find(|(_, [was, is, _])| was != is) {
            None => Ok(()),
            Some((option, [was, is, run])) => {
                let form = compact.map_or(String::new(), Compact::options);
                Err(self.of_another_run(option, [was, is + &form, run]))
            }
        }
    }

    /// Refuses it for a run with another value of an option, which reads a cache of `is`.
    fn of_another_run(&self, option: &'static str, [was, is, run]: [String; 3]) -> CacheError {
        CacheError::OtherOption {
            path: self.path().to_owned(),
            from: self.manifest().made.source(),
            option,
            was,
            is,
            run,
        }
    }

    /// Refuses it for a run at another temperature, which reads a cache of the options `is`. No option makes one of the
    /// log-probabilities that others have computed.
    pub fn of_another_temperature(&self, [was, is, run]: [String; 3]) -> CacheError {
        match self.manifest().made.filled_by {
            Some(_) => self.of_another_run("--temperature", [was, is, run]),
            None => CacheError::OtherTemperature { path: self.path().to_owned(), was, run },
        }
    }

    /// Refuses it beside a teacher whose weights have the digest `is`.
    pub fn of_another_teacher(&self, teacher: &Path, is: Digest) -> CacheError {
        let (path, was) = (self.path().to_owned(), self.manifest().made.teacher_sha256);
        CacheError::OtherTeacher { path, teacher: teacher.to_owned(), was, is }
    }

    /// Refuses the record of a sequence of which `counted` tokens count.
    pub fn of_other_rows(&self, key: &Key, counted: usize) -> CacheError {
        let what =
            format!("the record of sequence {key:?} has another number of rows than its {counted} tokens that count");
        CacheError::damaged(&self.path().join(INDEX), what)
    }

    /// Refuses the rows of a sequence with tokens which are not in the vocabulary, or with one twice.
    pub fn of_other_tokens(&self, key: &Key) -> CacheError {
        let what = format!("the rows of sequence {key:?} have tokens beyond the student's vocabulary, or one twice");
        CacheError::damaged(&self.path().join(HIDDEN), what)
    }

    /// Refuses it for training data that have a sequence which it lacks, counted from 1.
    pub fn lacks_sequence(&self, number: u64, data: &[PathBuf]) -> CacheError {
        CacheError::LacksData {
            path: self.path().to_owned(),
            from: self.manifest().made.source(),
            number,
            data: named(data),
        }
    }

    /// Refuses it for held-out data that have a sequence which it lacks, counted from 1.
    pub fn lacks_held_out(&self, number: u64, data: &[PathBuf]) -> CacheError {
        let made = &self.manifest().made;
        let held_out = if made.filled_by.is_some() { " --eval-data" } else { "" };
        let from = format!("{} DATA{held_out}", made.source());
        CacheError::LacksHeldOut { path: self.path().to_owned(), from, number, data: named(data) }
    }

    /// Refuses it for data to measure a model on that have a sequence which it lacks, counted from 1.
    pub fn lacks_measured(&self, number: u64, data: &[PathBuf]) -> CacheError {
        let Made { precision, seq_len, .. } = self.manifest().made;
        CacheError::LacksMeasured { path: self.path().to_owned(), number, data: named(data), seq_len, precision }
    }
}

impl Filling {
    /// Refuses data that had `counted` sequences, and of which fewer are there.
    ///
    /// # Errors
    /// [`CacheError::DataChanged`].
    pub fn check_lost(&self, counted: u64) -> Result<(), CacheError> {
        let lost = counted.saturating_sub(self.sequences());
        if lost == 0 { Ok(()) } else { Err(CacheError::DataChanged { path: self.path().to_owned(), lost }) }
    }
}

fn named(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| quoted(&path.display().to_string())).collect()
}
