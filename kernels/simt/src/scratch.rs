//! The folder in which a program's test compiles its kernels: below cargo's target folder, in a directory that nobody
//! else uses meanwhile.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use crate::compile::Simt;
use crate::error::{CompileError, io};

impl Simt {
    /// Compiles the machine for this program, below `target/tmp` if it is a test of cargo's, or else beside the
    /// program. Objects there are everybody's, each other file is of one [`Simt`] alone as long as that lives.
    ///
    /// # Errors
    /// [`CompileError`], above all where there is no g++.
    pub fn of_this_program() -> Result<Self, CompileError> {
        let folder = folder(&std::env::current_exe().map_err(io("this program"))?);
        let (directory, lock) = free(&folder.join("simt"))?;
        let mut simt = Self::new(&directory, &folder.join("kernels"))?;
        simt.lock = Some(lock);
        Ok(simt)
    }
}

/// The folder for what tests write, of a test in cargo's `target/debug/deps`.
fn folder(program: &Path) -> PathBuf {
    let beside = program.parent().unwrap_or(Path::new("."));
    match beside.parent().and_then(Path::parent) {
        Some(target) if beside.ends_with("deps") => target.join("tmp"),
        _ => beside.to_owned(),
    }
}

/// Takes the first directory that nobody holds: `0`, `1`, and so on. Whoever ends gives it back.
fn free(below: &Path) -> Result<(PathBuf, File), CompileError> {
    let mut number = 0;
    loop {
        let directory = below.join(number.to_string());
        std::fs::create_dir_all(&directory).map_err(io(&directory))?;
        let lock = File::create(directory.join("lock")).map_err(io(&directory))?;
        match lock.try_lock() {
            Ok(()) => return Ok((directory, lock)),
            Err(TryLockError::WouldBlock) => number += 1,
            Err(TryLockError::Error(error)) => return Err(io(&directory)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_a_time_have_a_directory_each() {
        let dir = tempfile::tempdir().unwrap();
        let (first, lock) = free(dir.path()).unwrap();
        let (second, _other) = free(dir.path()).unwrap();
        assert_ne!(first, second);
        drop(lock);
        assert_eq!(free(dir.path()).unwrap().0, first);
    }

    #[test]
    fn what_tests_write_is_below_the_target_folder() {
        let folder = |program: &str| folder(Path::new(program)).display().to_string();
        assert_eq!(folder("/saxpy/target/debug/deps/kernels-0123"), "/saxpy/target/tmp");
        assert_eq!(folder("/saxpy/target/debug/saxpy"), "/saxpy/target/debug");
    }
}
