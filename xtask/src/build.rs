//! `cargo xtask build`: a trainer whose bytes do not depend on its build directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::release::environment::cargo_home;
use crate::run::{FEATURES, cargo, root, step};
use crate::setup;

/// What a release holds: the trainer with every architecture, and `precast-aot`; not the programs that a checkout
/// needs.
const WHOLE: &str = "--workspace --exclude xtask --exclude xtask-simt --exclude xtask-start --exclude precast-abi \
                     --exclude precast-simt --features";

/// Makes a command one of what a release holds.
pub fn whole(command: &mut Command) -> &mut Command {
    command.args(WHOLE.split(' ')).arg(FEATURES)
}

/// Builds the trainer and `precast-aot` with every architecture, as releases are built; returns the trainer's path.
pub fn build() -> Result<PathBuf> {
    setup::compiler()?;
    let checkout = root().canonicalize().context("the checkout")?;
    step("build, reproducibly", whole(&mut reproducible(&checkout, "build")?))?;
    let trainer = checkout.join("target/reproducible/release/precast");
    println!("{}  {}", precast_fatbins::Digest::of(&std::fs::read(&trainer)?), trainer.display());
    Ok(trainer)
}

/// Returns a `cargo build` or `cargo test` that leaves no path of this machine in its outputs, which cargo alone
/// cannot. It has a target folder of its own, since other flags give other artifacts.
pub fn reproducible(checkout: &Path, command: &str) -> Result<Command> {
    let mut command = cargo(&[command, "--release", "--locked"]);
    flags(&mut command, checkout, &cargo_home()?);
    command.current_dir(checkout).arg("--target-dir").arg(checkout.join("target/reproducible"));
    // All target folders of the checkout share one compiler and one cache.
    command.env("PRECAST_HOME", checkout.join("target/precast"));
    // Incremental compilation splits crates differently.
    command.env("CARGO_INCREMENTAL", "0");
    Ok(command)
}

/// Sets fixed names for sources in panics, wherever they lie.
pub fn flags(command: &mut Command, checkout: &Path, cargo_home: &Path) {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let flags = [remap(checkout, "/precast"), remap(cargo_home, "/cargo")];
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
}
