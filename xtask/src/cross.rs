//! Builds for another machine, and runs the result under emulation.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::build::{reproducible, whole};
use crate::ci::{copy_checkout, locked, same, toolchain};
use crate::release::elf;
use crate::run::{cargo, output, root, step};
use crate::setup;

/// GB10's host.
pub const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Programs of a release.
const PROGRAMS: [&str; 2] = ["precast", "precast-aot"];

/// Debian's linker for it, its package, and the directory of its libraries.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const PACKAGES: [(&str, &str); 2] =
    [(LINKER, "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"), ("qemu-aarch64", "qemu-user")];
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Libraries that a program may need: the C library with libm, and the compiler's own. libcuda is opened by name, if
/// present.
const NEEDED: [&str; 3] = ["libc.so.6", "libgcc_s.so.1", "libm.so.6"];

/// Whole-program tests that run the emulated program in place of this machine's.
const TESTS: [&str; 5] = ["apr::a_model", "resume::what_may_change", "train::", "dry_run::", "output::"];

/// Installs a target's standard library and Debian's linker.
fn set_up(target: &str, programs: &[(&str, &str)]) -> Result<()> {
    ensure!(target == AARCH64, "unknown target {target}: {AARCH64} is known");
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]).current_dir(root()))?;
    if !installed.lines().any(|line| line == target) {
        step("install the target's standard library", Command::new("rustup").args(["target", "add", target]))?;
    }
    for (program, packages) in programs {
        setup::debian_program(program, &packages.split(' ').collect::<Vec<_>>())?;
    }
    setup::compiler()
}

/// Returns a `cargo build` or `cargo test` for a target, whose programs run under the emulator.
fn reproducible_for(target: &str, checkout: &Path, command: &str) -> Result<Command> {
    let mut command = reproducible(checkout, command)?;
    let variable = format!("CARGO_TARGET_{}", target.to_uppercase().replace('-', "_"));
    command.args(["--target", target]).env(format!("{variable}_LINKER"), LINKER);
    command.env(format!("{variable}_RUNNER"), format!("qemu-aarch64 -L {LIBRARIES}"));
    Ok(command)
}

/// Builds a checkout for a target; returns the directory of its programs.
fn build_at(checkout: &Path, target: &str) -> Result<PathBuf> {
    let mut command = reproducible_for(target, checkout, "build")?;
    step(&format!("build {} for {target}, reproducibly", checkout.display()), whole(&mut command))?;
    let built = checkout.join("target/reproducible").join(target).join("release");
    for name in PROGRAMS {
        check_needs(&built.join(name))?;
    }
    Ok(built)
}

/// Builds the trainer and `precast-aot` for a target with every architecture, as releases are built; returns their
/// directory.
pub fn build(target: &str) -> Result<PathBuf> {
    set_up(target, &PACKAGES[..1])?;
    let built = build_at(&root().canonicalize().context("the checkout")?, target)?;
    for name in PROGRAMS {
        let program = built.join(name);
        println!("{}  {}", precast_fatbins::Digest::of(&fs::read(&program)?), program.display());
    }
    Ok(built)
}

/// Checks that a program asks the loader for [`NEEDED`] alone.
fn check_needs(program: &Path) -> Result<()> {
    let needed = elf::needs(&fs::read(program)?).with_context(|| program.display().to_string())?.libraries;
    let beyond: Vec<&String> =
        needed.iter().filter(|name| !NEEDED.contains(&name.as_str()) && !name.starts_with("ld-linux")).collect();
    ensure!(!needed.is_empty() && beyond.is_empty(), "{} needs {needed:?}", program.display());
    println!("== {} needs {needed:?}", program.display());
    Ok(())
}

/// Builds for aarch64, runs the result under emulation beside this machine's, and compares it with a build in another
/// directory.
pub fn aarch64() -> Result<()> {
    let own = emulate()?;
    let dir = tempfile::tempdir()?;
    let checkout = dir.path().join("another place/b");
    copy_checkout(&checkout)?;
    toolchain(&checkout)?;
    // The cache that `reproducible` fills. A kernel is the locked one on any build machine, or the build fails.
    let cache = root().join("target/precast/cache").canonicalize().context("the cache of kernels")?;
    symlink(cache, checkout.join("target/precast/cache"))?;
    let other = build_at(&checkout, AARCH64)?;
    PROGRAMS.into_iter().try_for_each(|name| same(name, &own, &other))
}

/// Builds for aarch64, and tests the result under emulation; returns the directory of its programs.
pub fn emulate() -> Result<PathBuf> {
    set_up(AARCH64, &PACKAGES)?;
    let built = build(AARCH64)?;
    // The emulated programs: tests look for precast-aot beside the trainer.
    let emulated = built.join("emulated");
    fs::create_dir_all(&emulated)?;
    for name in PROGRAMS {
        let (script, program) = (emulated.join(name), built.join(name));
        fs::write(&script, format!("#!/bin/sh\nexec qemu-aarch64 -L {LIBRARIES} '{}' \"$@\"\n", program.display()))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    let trainer = emulated.join("precast");
    let listed = output(Command::new(&trainer).arg("kernels"))?;
    let held = listed.lines().filter(|line| line.starts_with("sm_121"));
    let held = held.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect();
    ensure!(
        locked("aot/models/locks".as_ref(), "sm_121")? == held,
        "its kernels for sm_121 are not the locked ones:\n{listed}"
    );
    println!("== it holds the locked kernels for sm_121");
    // This machine's own programs, for comparison.
    let own = ["build", "--release", "--locked", "--package", "precast", "--package", "precast-models"];
    step("build this machine's programs", &mut cargo(&own))?;
    let tests = || cargo(&["test", "--release", "--locked", "--test", "programs", "--"]);
    step(
        "the emulated programs beside this machine's",
        tests().arg("emulated::").env("PRECAST_TEST_EMULATED", &emulated),
    )?;
    step("tests of the emulated program", tests().args(TESTS).env("PRECAST_BIN", &trainer))?;
    Ok(built)
}
