//! Runs the README's command on a fresh clone without CUDA: it installs its compiler and embeds the locked kernels.
//! Without a network it names the remedies, and it embeds no other kernels in any profile.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::checkout::{copy_checkout, without_network};
use super::published;
use crate::run::cargo;

const FEATURE: &str = "sm_121";
/// Variables that name a compiler, kernels, or their directories.
const ENVIRONMENT: [&str; 7] = [
    "CARGO_TARGET_DIR",
    "CUDA_HOME",
    "PRECAST_BUILT_IN",
    "PRECAST_FATBINS",
    "PRECAST_HOME",
    "PRECAST_MODELS",
    "PRECAST_NVRTC",
];
/// Start of the announcement of a download.
const ANNOUNCED: &str = "downloading nvidia-cuda-nvrtc 13.0.88 from PyPI: ";

/// Builds an unbuilt copy of the checkout, in both profiles, with and without a network.
pub fn check() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let checkout = dir.path().join("clone");
    copy_checkout(&checkout)?;
    refused(&checkout)?;
    for (profile, arguments) in [("debug", &[][..]), ("release", &["--release"][..])] {
        let said = succeed(&format!("a {profile} build of a fresh clone"), &mut build(&checkout, arguments))?;
        // The first build installs the compiler for both.
        ensure!(said.contains(ANNOUNCED) == (profile == "debug"), "what was said of the download:\n{said}");
        ensure!(!said.contains(ANNOUNCED) || said.contains("https://docs.nvidia.com/cuda/eula"), "no license:\n{said}");
        let trainer = checkout.join("target").join(profile).join("precast");
        let held = published::embedded(&trainer, "sm_")?;
        ensure!(published::locked(&checkout.join("aot/models/locks"), FEATURE)? == held, "not the locked kernels");
        let again = succeed("the same again", &mut build(&checkout, arguments))?;
        ensure!(!again.contains("Compiling"), "a finished build is rebuilt:\n{again}");
    }
    let home = checkout.join("target/precast/toolchain/nvidia-cuda-nvrtc-13.0.88");
    ensure!(home.join("License.txt").exists(), "no license beside the compiler");
    println!("== {FEATURE}: a fresh clone builds in both profiles, with one download");
    unlocked(&checkout)
}

/// Runs cargo build in a checkout, without variables that name a compiler or kernels.
fn build(checkout: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo(&["build", "--locked", "--features", FEATURE]);
    command.args(arguments).current_dir(checkout);
    for name in ENVIRONMENT {
        command.env_remove(name);
    }
    command
}

/// Like [`build`], without a network.
fn unshared(checkout: &Path, arguments: &[&str]) -> Command {
    let plain = build(checkout, arguments);
    let mut command = without_network(&plain);
    command.current_dir(checkout);
    for (name, _) in plain.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    command
}

/// Checks that a build without a network, or forbidden to use it, says why it has no compiler, and the remedies.
fn refused(checkout: &Path) -> Result<()> {
    let mut forbidden = build(checkout, &[]);
    forbidden.env("PRECAST_OFFLINE", "1");
    for (what, mut command, because) in [
        ("with PRECAST_OFFLINE", forbidden, "PRECAST_OFFLINE is set"),
        ("with --offline", unshared(checkout, &["--offline"]), "cargo was called with --offline"),
        ("without a network", unshared(checkout, &[]), "python3 -m pip download nvidia-cuda-nvrtc==13.0.88 failed"),
    ] {
        println!("\n== a fresh clone {what}");
        let Output { status, stderr, .. } = command.output()?;
        let said = String::from_utf8_lossy(&stderr);
        for expected in [because, "toolchain install", "PRECAST_NVRTC=", "PRECAST_FATBINS="] {
            ensure!(!status.success() && said.contains(expected), "{what}, `{expected}` was expected:\n{said}");
        }
        ensure!(!checkout.join("target/precast/toolchain").exists(), "{what} something was installed");
    }
    Ok(())
}

/// Checks that an unlocked kernel is an error in a debug build too, unless allowed.
fn unlocked(checkout: &Path) -> Result<()> {
    let source = checkout.join("kernels/src/swiglu/fwd.cu");
    let text = fs::read_to_string(&source)?;
    fs::write(&source, format!("{text};\n")).context("a changed source")?;
    println!("\n== a debug build with one more character in a source");
    let Output { status, stderr, .. } = build(checkout, &[]).output()?;
    let said = String::from_utf8_lossy(&stderr);
    ensure!(!status.success() && said.contains("kernels are not the locked ones"), "it was not refused:\n{said}");
    ensure!(said.contains("swiglu.fwd{") && said.contains("PRECAST_UNLOCKED=1"), "{said}");
    let said = succeed("the same with PRECAST_UNLOCKED", build(checkout, &[]).env("PRECAST_UNLOCKED", "1"))?;
    ensure!(said.contains("warning: precast@") && said.contains("not as locked: "), "no warning:\n{said}");
    Ok(())
}

/// Runs a build that must succeed and returns its output.
fn succeed(what: &str, command: &mut Command) -> Result<String> {
    println!("\n== {what}");
    let started = std::time::Instant::now();
    let Output { status, stderr, .. } = command.output()?;
    let said = String::from_utf8_lossy(&stderr).into_owned();
    ensure!(status.success(), "{what} ended with {status}:\n{said}");
    println!("== done in {:.0} s", started.elapsed().as_secs_f64());
    Ok(said)
}
