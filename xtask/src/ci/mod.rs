//! `cargo xtask ci`: every test, the whole matrix of kernels on the host, the page's example, then proofs of the
//! artifact: locked, reproducible, published, built offline, built from packages alone, and of a fresh clone; and a
//! release is made twice.

pub mod fresh;
mod install;
mod offline;
pub mod packages;
pub mod page;
mod published;
pub mod released;
mod reproducible;
mod rows;

pub use published::locked;
pub use reproducible::{same, toolchain};

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{FEATURES, cargo, listed, step};
use crate::{examples, setup, simt, test};

/// Runs every check that needs no GPU. `out` receives bundle, locks and provenance.
pub fn ci(out: &Path) -> Result<()> {
    test::test()?;
    simt::simt("")?;
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
    fresh::check()?;
    reproducible::check()?;
    rows::check()?;
    released::check(out)?;
    for feature in FEATURES.split(',') {
        let what = format!("a trainer for {feature} alone");
        step(&what, &mut cargo(&["build", "--release", "--locked", "--features", feature]))?;
    }
    install::check()?;
    println!("\n== all passed; {} holds what to upload", out.display());
    Ok(())
}

/// Returns the path of `precast-aot` as the tests built it.
fn aot() -> PathBuf {
    PathBuf::from("target/release/precast-aot")
}

/// Copies the checkout's tracked and new files into a directory.
pub fn copy_checkout(to: &Path) -> Result<()> {
    for name in listed(&[])? {
        let to = to.join(&name);
        std::fs::create_dir_all(to.parent().context("a file lies in a directory")?)?;
        std::fs::copy(&name, to).context(name)?;
    }
    Ok(())
}
