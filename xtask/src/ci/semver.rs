//! Compares the public API of each library with the one that its users have: a change that breaks them takes a version
//! that says so.

use std::process::Command;

use anyhow::{Result, ensure};

use super::packages;
use crate::run::{cargo, step};
use crate::setup;

const TOOL: &str = "cargo-semver-checks";
const VERSION: &str = "0.51.0";

/// Compares with a commit, or with what is on crates.io: a package that is not there has no users yet.
pub fn check(commit: Option<&str>) -> Result<()> {
    let (mut names, mut all) = (Vec::new(), 0);
    for (name, _) in packages::published()?.names {
        all += 1;
        if commit.is_some() || is_on_crates_io(&name)? {
            names.push(name);
        }
    }
    println!("semver: {} of {all} packages have an API to compare with", names.len());
    if names.is_empty() {
        return Ok(());
    }
    let mut compare = Command::new(setup::program(TOOL, VERSION, &[])?);
    compare.arg("semver-checks").args(names.iter().flat_map(|name| ["--package", name]));
    step(
        "the public API is that of the versions",
        compare.args(commit.into_iter().flat_map(|it| ["--baseline-rev", it])),
    )
}

/// True if a package is on crates.io. Asked outside of the workspace, whose packages cargo finds first.
fn is_on_crates_io(name: &str) -> Result<bool> {
    let mut info = cargo(&["info", "--quiet", "--registry", "crates-io", name]);
    let found = info.current_dir(std::env::temp_dir()).output()?;
    let said = String::from_utf8_lossy(&found.stderr);
    ensure!(found.status.success() || said.contains("could not find"), "cannot ask crates.io for {name}: {said}");
    Ok(found.status.success())
}
