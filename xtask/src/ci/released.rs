//! Makes a release twice: of this checkout, and of a clone of another name, in a noisy environment.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::reproducible::{another_cargo_home, noise, toolchain};
use crate::run::{cargo, root, step};

/// Makes one in `out/dist`, and compares it with what the clone makes.
pub fn check(out: &Path) -> Result<()> {
    let dist = out.join("dist");
    step("a release", cargo(&["xtask", "release", "--out"]).arg(&dist))?;
    let dir = tempfile::tempdir()?;
    let clone = dir.path().join("another place/b");
    step("a clone", Command::new("git").args(["clone", "--quiet"]).arg(root()).arg(&clone))?;
    toolchain(&clone)?;
    // A kernel is the locked one on any build machine, or the build fails.
    let cache = root().join("target/precast/cache").canonicalize().context("the cache of kernels")?;
    symlink(cache, clone.join("target/precast/cache"))?;
    let mut again = cargo(&["xtask", "release", "--reproduce"]);
    again.arg(dist.canonicalize()?).current_dir(&clone).env("CARGO_HOME", another_cargo_home(dir.path())?);
    // The clone's own.
    again.env_remove("CARGO_TARGET_DIR").env_remove("PRECAST_HOME");
    noise(&mut again);
    step("the same release of the clone", &mut again)
}
