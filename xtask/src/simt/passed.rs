//! Remembers passed checks: the same program and g++ would find the same again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use precast_fatbins::Digest;

use crate::run::output;

/// Variables that g++ reads, or the crate that calls it.
const FLAGS: [&str; 3] = ["CXXFLAGS", "CPATH", "CPLUS_INCLUDE_PATH"];

/// Checks that one checker has passed: lines of a file named after the checker.
pub struct Passed {
    before: BTreeSet<String>,
    file: Mutex<File>,
}

impl Passed {
    /// Opens the checks of this checker: this program, which contains every kernel's sources, its references and the
    /// machine, with its g++, flags and kind of CPU. Deletes files of other checkers.
    ///
    /// # Errors
    /// If the program or g++ cannot be read, or the file cannot be opened.
    pub fn open(directory: &Path) -> Result<Self> {
        // The running program, even if its file was replaced.
        let program = fs::read("/proc/self/exe")?;
        let compiler = output(Command::new("g++").arg("--version"))?;
        let flags = FLAGS.map(|name| format!("{:?}", std::env::var_os(name))).concat();
        let cpu = fs::read_to_string("/proc/cpuinfo")?;
        let cpu: String =
            cpu.lines().filter(|line| line.starts_with("model name") || line.starts_with("flags")).take(2).collect();
        let parts = [&*program, compiler.as_bytes(), flags.as_bytes(), cpu.as_bytes()];
        Self::of_checker(directory, &Digest::of_parts("simt.checker", parts))
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
        // A line without its end was truncated when the process ended.
        let whole = text.rfind('\n').map_or(0, |last| last + 1);
        let before = text[..whole].lines().map(str::to_owned).collect();
        let file = File::options().create(true).append(true).open(&path).context("kernels that have passed")?;
        file.set_len(whole as u64)?;
        Ok(Self { before, file: Mutex::new(file) })
    }

    /// True if a check had passed when this was opened.
    pub fn contains(&self, check: &str) -> bool {
        self.before.contains(check)
    }

    /// Adds a passed check.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, check: &str) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{check}\n").as_bytes()).context("a check that has passed cannot be recorded")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_counts_once_its_line_is_whole() {
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
        assert!(!open(&checker).contains("gemm.fwd for sm_121"), "nobody has written the rest of the torn line");

        assert!(!open(&another).contains("gemm.fwd for sm_89"));
        assert!(!path.exists(), "files of other checkers would pile up");
    }
}
