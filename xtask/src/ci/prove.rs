//! Runs every check.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::checkout::aot;
use super::{fresh, install, offline, packages, page, published, released, reproducible, rows, semver};
use crate::run::{FEATURES, cargo, step};
use crate::{examples, fuzz, setup, simt, test};

/// Runs every check that needs no GPU. `out` receives bundle, locks and provenance.
pub fn ci(out: &Path) -> Result<()> {
    test::test()?;
    test::faults()?;
    simt::simt("")?;
    fuzz::fuzz(&[], &fuzz::Most::Seconds(4))?;
    page::check()?;
    examples::all()?;
    prove(out)
}

/// Checks the artifact, without the tests.
pub fn prove(out: &Path) -> Result<()> {
    setup::compiler()?;
    setup::debian(&["minisign", "skopeo"])?;
    step("build", &mut cargo(&["build", "--release", "--locked", "--workspace", "--features", FEATURES]))?;
    step("every kernel is the locked one", Command::new(aot()).args(["lock", "--check"]))?;
    published::check(out)?;
    offline::check(out)?;
    packages::check()?;
    semver::check(None)?;
    fresh::check()?;
    // Its copy compiles every kernel on one core.
    reproducible::check(|| {
        rows::check()?;
        released::check(out)?;
        for feature in FEATURES.split(',') {
            let what = format!("a trainer for {feature} alone");
            step(&what, &mut cargo(&["build", "--release", "--locked", "--features", feature]))?;
        }
        install::check()
    })?;
    println!("\n== all passed; {} holds what to upload", out.display());
    Ok(())
}
