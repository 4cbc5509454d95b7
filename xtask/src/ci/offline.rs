//! Builds a trainer with the locked kernels from published files, without compiler or network.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::checkout::{copy_checkout, without_network};
use super::published;
use crate::run::{cargo, output, step};

/// Builds from `out/published` and lists the embedded kernels.
pub fn check(out: &Path) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let checkout = dir.path().join("air-gapped");
    copy_checkout(&checkout)?;
    let fatbins = out.join("published").canonicalize()?;
    let key = fs::read_to_string(out.join("precast.pub"))?;
    let key = key.lines().nth(1).context("a public key")?;
    let build = |fatbins: &Path| {
        let plain = cargo(&["build", "--release", "--offline", "--locked", "--features", "sm_121"]);
        let mut command = without_network(&plain);
        command.current_dir(&checkout);
        command.env("PRECAST_FATBINS", fatbins).env("PRECAST_TRUSTED_KEY", key);
        // No compiler at any place that is searched.
        command.env("PRECAST_HOME", dir.path().join("nothing")).env_remove("CUDA_HOME").env_remove("PRECAST_NVRTC");
        command
    };
    step("build without compiler and network", &mut build(&fatbins))?;
    let listed = output(Command::new(checkout.join("target/release/precast")).arg("kernels"))?;
    let found: Vec<&str> = listed.lines().filter(|line| line.starts_with("sm_")).collect();
    let digests = found.iter().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect();
    ensure!(published::locked(&fatbins, "sm_121")? == digests, "the trainer's kernels are not the locked ones");
    println!("== {} sm_121 kernels embedded, as locked", found.len());

    let empty = dir.path().join("empty");
    fs::create_dir(&empty)?;
    let refused = build(&empty).output()?;
    let message = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && message.contains("precast-aot fetch"), "a build without kernels:\n{message}");
    Ok(())
}
