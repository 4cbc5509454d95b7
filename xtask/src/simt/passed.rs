//! Kernels that have passed: a check by the program and the g++ that have already made it would find the same.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use precast_fatbins::Digest;

use crate::run::output;

/// The checks that one checker has passed: the lines of a file that is named for the checker.
pub struct Passed {
    before: BTreeSet<String>,
    file: Mutex<File>,
}

impl Passed {
    /// Reads those of this program, which contains the sources of every kernel, its references and the machine, with the g++ that
    /// it calls. Files of other checkers are deleted.
    ///
    /// # Errors
    /// Where the program or g++ cannot be read, or the file cannot be opened.
    pub fn open(directory: &Path) -> Result<Self> {
        let program = fs::read(std::env::current_exe()?)?;
        let compiler = output(Command::new("g++").arg("--version"))?;
        Self::of_checker(directory, &Digest::of_parts("simt.checker", [&*program, compiler.as_bytes()]))
    }

    fn of_checker(directory: &Path, checker: &Digest) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join(checker.to_string());
        for entry in fs::read_dir(directory)? {
            let other = entry?.path();
            if other != path {
                fs::remove_file(other)?;
            }
        }
        let text = if path.exists() { fs::read_to_string(&path)? } else { String::new() };
        // A line without its end was being written when something ended the process.
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned);
        let before = whole.collect();
        let mut file = File::options().create(true).append(true).open(&path).context("kernels that have passed")?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self { before, file: Mutex::new(file) })
    }

    /// True if a check had passed when this was opened.
    pub fn contains(&self, check: &str) -> bool {
        self.before.contains(check)
    }

    /// Adds a check that has passed.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn add(&self, check: &str) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.write_all(format!("{check}\n").as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_counts_for_the_checker_that_made_it_once_its_line_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let [checker, another] = [b"a", b"b"].map(|bytes| Digest::of(bytes));
        let open = |checker| Passed::of_checker(dir.path(), checker).unwrap();
        let passed = open(&checker);
        passed.add("gemm.fwd for sm_89").unwrap();
        assert!(!passed.contains("gemm.fwd for sm_89"), "it was not there when the file was opened");
        assert!(open(&checker).contains("gemm.fwd for sm_89") && !open(&checker).contains("gemm.fwd"));

        let path = dir.path().join(checker.to_string());
        fs::write(&path, "gemm.fwd for sm_89\ngemm.fwd for sm_121").unwrap();
        let torn = open(&checker);
        assert!(torn.contains("gemm.fwd for sm_89") && !torn.contains("gemm.fwd for sm_121"));
        torn.add("swiglu.fwd for sm_89").unwrap();
        assert!(open(&checker).contains("swiglu.fwd for sm_89"), "the torn line must not swallow the next");

        assert!(!open(&another).contains("gemm.fwd for sm_89"));
        assert!(!path.exists(), "files of other checkers would pile up");
    }
}
