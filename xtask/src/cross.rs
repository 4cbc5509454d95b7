//! Building for another machine, and running what was built under emulation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::build::reproducible;
use crate::run::{cargo, output, root, step};
use crate::setup;

/// GB10's host.
pub const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Debian's linker for it, the package that has it, and where its libraries lie.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const PACKAGES: [(&str, &str); 2] =
    [(LINKER, "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"), ("qemu-aarch64", "qemu-user")];
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// What a program may need besides itself: libcuda is opened by name, where it is there.
const NEEDED: [&str; 3] = ["libc.so.6", "libgcc_s.so.1", "libm.so.6"];

/// Whole-program tests that run the emulated program: a golden trajectory, GGUF and APR files, checkpoints, refusals.
const TESTS: [&str; 6] =
    ["golden::every_step_in_fp32", "apr::a_model", "resume::what_may_change", "train::", "dry_run::", "output::"];

/// Installs what a target needs: its standard library, and Debian's linker.
fn set_up(target: &str, programs: &[(&str, &str)]) -> Result<()> {
    ensure!(target == AARCH64, "unknown target {target}: {AARCH64} is known");
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]).current_dir(root()))?;
    if !installed.lines().any(|line| line == target) {
        step("install the target's standard library", Command::new("rustup").args(["target", "add", target]))?;
    }
    for (program, packages) in programs {
        setup::debian_program(program, &packages.split(' ').collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Makes a build one for a target.
fn aim(command: &mut Command, target: &str) {
    let name = target.to_uppercase().replace('-', "_");
    command.args(["--target", target]).env(format!("CARGO_TARGET_{name}_LINKER"), LINKER);
}

/// Builds the trainer and `precast-aot` for a target with every architecture, as releases are built; returns the trainer.
pub fn build(target: &str) -> Result<PathBuf> {
    set_up(target, &PACKAGES[..1])?;
    setup::compiler()?;
    let checkout = root().canonicalize().context("the checkout")?;
    let mut command = reproducible(&checkout, &crate::build::WHOLE)?;
    aim(&mut command, target);
    step(&format!("build for {target}, reproducibly"), &mut command)?;
    let trainer = checkout.join("target/reproducible").join(target).join("release/precast");
    for name in ["precast", "precast-aot"] {
        check_needs(&trainer.with_file_name(name))?;
    }
    println!("{}  {}", precast_fatbins::Digest::of(&fs::read(&trainer)?), trainer.display());
    Ok(trainer)
}

/// Checks that a program asks the loader for the C library and what belongs to it alone.
fn check_needs(program: &Path) -> Result<()> {
    let listed = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(program))?;
    let needed = listed.lines().filter(|line| line.contains("(NEEDED)")).filter_map(|line| {
        let (_, name) = line.split_once('[')?;
        name.strip_suffix(']')
    });
    let beyond: Vec<&str> = needed.filter(|name| !NEEDED.contains(name) && !name.starts_with("ld-linux")).collect();
    ensure!(beyond.is_empty(), "{} needs {}", program.display(), beyond.join(", "));
    Ok(())
}

/// Builds for aarch64 without kernels, and runs tests whose programs are emulated.
pub fn emulate() -> Result<()> {
    set_up(AARCH64, &PACKAGES)?;
    let mut command = cargo(&["build", "--release", "--locked", "--package", "precast", "--package", "precast-aot"]);
    aim(&mut command, AARCH64);
    step("build the programs for aarch64", &mut command)?;
    let built = root().canonicalize()?.join("target").join(AARCH64).join("release");
    // Programs that are the emulated ones: tests look for precast-aot beside the trainer.
    let emulated = built.join("emulated");
    fs::create_dir_all(&emulated)?;
    for name in ["precast", "precast-aot"] {
        check_needs(&built.join(name))?;
        let (script, program) = (emulated.join(name), built.join(name));
        fs::write(&script, format!("#!/bin/sh\nexec qemu-aarch64 -L {LIBRARIES} '{}' \"$@\"\n", program.display()))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    let script = emulated.join("precast");
    let mut tests = cargo(&["test", "--release", "--locked", "--test", "programs", "--"]);
    step("tests of the emulated program", tests.args(TESTS).env("PRECAST_BIN", &script))
}
