//! Installs the trainer from a checkout, as the pages say, and checks that it holds the locked kernels.

use std::path::Path;

use anyhow::{Result, ensure};

use super::published::{embedded, locked};
use crate::run::{cargo, step};

const FEATURE: &str = "sm_89";

/// Runs `cargo install`, which shares the release builds of the target folder.
pub fn check() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut install = cargo(&["install", "--path", ".", "--locked", "--features", FEATURE, "--root"]);
    step(&format!("install a trainer for {FEATURE}"), install.arg(dir.path()))?;
    let held = embedded(&dir.path().join("bin/precast"), FEATURE)?;
    ensure!(locked(Path::new("aot/models/locks"), FEATURE)? == held, "it does not hold the locked kernels");
    println!("== it holds {} locked kernels", held.len());
    Ok(())
}
