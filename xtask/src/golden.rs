//! Golden cases of a directory: those that `tests/golden/make.py` writes, with weights in files or without.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, step};
use crate::setup;
use crate::test::{ALL, MODELS};

/// The tests that compare cases; `xtask/gpu/run.sh` names them, too.
const TESTS: [&str; 3] = ["golden_steps::", "golden_int8::", "golden_rollouts::"];

/// Compares every case of a directory with what PyTorch and float64 computed, and prints how far apart they are.
///
/// # Errors
/// A directory without a case, and a case that is beyond its gates.
pub fn compare(directory: &Path) -> Result<()> {
    cases(directory)?;
    setup::compiler()?;
    let mut tests = cargo(&["test", "--test", "programs"]);
    tests
        .args(ALL)
        .args(["--", "--nocapture"])
        .args(TESTS)
        .envs(MODELS)
        .env("PRECAST_TEST_GOLDEN", fs::canonicalize(directory)?);
    step(&format!("golden cases of {}", directory.display()), &mut tests)
}

/// Lists the cases of a directory, by name.
///
/// # Errors
/// A directory that holds none.
pub fn cases(directory: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read {}", directory.display());
    let entries = fs::read_dir(directory).with_context(unreadable)?.collect::<Result<Vec<_>, _>>();
    let mut cases: Vec<PathBuf> = entries.with_context(unreadable)?.iter().map(fs::DirEntry::path).collect();
    cases.retain(|case| case.join("case.json").exists());
    cases.sort();
    ensure!(
        !cases.is_empty(),
        "{}: no directory in it has a case.json: tests/golden/make.py new DIR/NAME makes a case",
        directory.display()
    );
    Ok(cases)
}
