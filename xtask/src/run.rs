//! Runs other programs, and fails when they do.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Features of every build here: kernels for every architecture.
pub const FEATURES: &str = "sm_89,sm_90,sm_121";

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the cargo that called this program.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// The trainer of [`build_trainer`].
pub fn precast(arguments: &[&str]) -> Command {
    let mut command = Command::new("target/release/precast");
    command.args(arguments);
    command
}

/// Builds the trainer with every architecture.
pub fn build_trainer() -> Result<()> {
    step(
        "build the trainer with kernels for sm_89, sm_90 and sm_121",
        &mut cargo(&["build", "--release", "--features", FEATURES]),
    )
}

/// Lists the checkout's tracked and new files that are there, below these paths, or all.
pub fn listed(paths: &[&str]) -> Result<Vec<String>> {
    let mut list = Command::new("git");
    let names =
        output(list.args(["ls-files", "-co", "--exclude-standard", "-z", "--"]).args(paths).current_dir(root()))?;
    let is_there = |name: &&str| root().join(name).is_file();
    Ok(names.split_terminator('\0').filter(is_there).map(str::to_owned).collect())
}

/// Runs a command that must succeed; prints its purpose and duration.
pub fn step(what: &str, command: &mut Command) -> Result<()> {
    println!("\n== {what}");
    let started = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(status.success(), "{what}: {} ended with {status}", command.get_program().display());
    println!("== done in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command that must succeed and returns its output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ended with {}\n{errors}", command.get_program().display(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}
