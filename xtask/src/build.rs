//! `cargo xtask build`: a trainer whose bytes do not depend on where it is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{FEATURES, cargo, root, step};
use crate::setup;

/// What a release holds: the trainer with every architecture, and `precast-aot`; not the programs that a checkout needs.
pub const WHOLE: [&str; 9] = [
    "--workspace",
    "--exclude",
    "xtask",
    "--exclude",
    "precast-abi",
    "--exclude",
    "precast-simt",
    "--features",
    FEATURES,
];

/// Builds the trainer and `precast-aot` with every architecture, as releases are built; returns the trainer.
pub fn build() -> Result<PathBuf> {
    setup::compiler()?;
    let checkout = root().canonicalize().context("the checkout")?;
    step("build, reproducibly", reproducible(&checkout, "build")?.args(WHOLE))?;
    let trainer = checkout.join("target/reproducible/release/precast");
    println!("{}  {}", precast_fatbins::Digest::of(&std::fs::read(&trainer)?), trainer.display());
    Ok(trainer)
}

/// `cargo build` or `cargo test` of a checkout in which no path of this machine is left: what cargo alone cannot do. It has a
/// target folder of its own, since other flags are other artifacts.
pub fn reproducible(checkout: &Path, command: &str) -> Result<Command> {
    let cargo_home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cargo"),
    };
    let mut command = cargo(&[command, "--release", "--locked"]);
    flags(&mut command, checkout, &cargo_home);
    command.current_dir(checkout).arg("--target-dir").arg(checkout.join("target/reproducible"));
    // One compiler and one cache for every target folder of the checkout.
    command.env("PRECAST_HOME", checkout.join("target/precast"));
    // Incremental compilers cut crates another way.
    command.env("CARGO_INCREMENTAL", "0");
    Ok(command)
}

/// Names under which sources appear in panics, wherever they are.
pub fn flags(command: &mut Command, checkout: &Path, cargo_home: &Path) {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let flags = [remap(checkout, "/precast"), remap(cargo_home, "/cargo")];
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
}
