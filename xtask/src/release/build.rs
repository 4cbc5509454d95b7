//! Builds the programs of a release: for one machine after the other, by pinned tools, in an environment that holds
//! nothing else.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use precast_aot::home;

use super::elf;
use super::environment::{cargo_home, clean, folder};
use super::hosts::{Host, PROGRAMS};
use super::tools::Tools;
use crate::run::{output, step};

/// Programs of one machine, as they are shipped.
pub struct Programs {
    pub host: Host,
    /// Each by its name, stripped, with the symbols that were taken from it.
    pub files: Vec<Program>,
}

pub struct Program {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    pub symbols: Vec<u8>,
}

/// Builds the programs of a machine, takes their symbols, and checks what they ask for.
pub fn build(host: Host, checkout: &Path, tools: &Tools, commit: &str) -> Result<Programs> {
    let mut cargo = clean(crate::run::cargo(&[]).get_program());
    cargo.current_dir(checkout).args(["build", "--release", "--frozen", "--features", "precast/all"]);
    cargo.args(PROGRAMS.iter().flat_map(|(_, package)| ["--package", package]));
    cargo.args(["--target", host.triple, "--target-dir"]).arg(folder(checkout));
    // Names of functions, which are then taken out.
    cargo.args(["--config", "profile.release.strip=false"]);
    cargo.env("PRECAST_HOME", home::directory().canonicalize()?).env("PRECAST_COMMIT", commit);
    // Incremental compilation splits crates differently.
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_ENCODED_RUSTFLAGS", flags(checkout, &tools.rust.sources)?);
    tools.zig.set(&mut cargo);
    step(&format!("the programs for {}", host.machine), &mut cargo)?;
    let built = built(checkout, host);
    let files = PROGRAMS.iter().map(|(name, _)| program(name, &built, tools)).collect::<Result<_>>()?;
    Ok(Programs { host, files })
}

/// Directory of a machine's programs, as they are linked.
pub fn built(checkout: &Path, host: Host) -> PathBuf {
    folder(checkout).join(host.triple).join("release")
}

/// Fixed names for sources in panics, wherever they lie.
fn flags(checkout: &Path, std: &(PathBuf, String)) -> Result<OsString> {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let flags = [
        remap(checkout, "/precast"),
        remap(&cargo_home()?, "/cargo"),
        // As it is called where the component rust-src is not installed.
        remap(&std.0, &std.1),
    ];
    Ok(flags.join("\x1f").into())
}

/// Takes the names of functions from a program, for debuggers and profilers, which find them beside it by name and
/// checksum. Lines are no part of them: zig compiles glibc's start files with lines that name its own directory.
fn program(name: &'static str, built: &Path, tools: &Tools) -> Result<Program> {
    let (whole, dir) = (built.join(name), tempfile::tempdir()?);
    let [named, symbols, stripped] =
        [format!("{name}.named"), format!("{name}.debug"), name.to_owned()].map(|name| dir.path().join(name));
    let objcopy = |options: &[&str], from: &Path, to: &Path| {
        output(Command::new(&tools.rust.objcopy).args(options).arg(from).arg(to)).map(drop)
    };
    objcopy(&["--strip-debug"], &whole, &named)?;
    objcopy(&["--only-keep-debug"], &named, &symbols)?;
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    objcopy(&["--strip-all", &link], &whole, &stripped)?;
    let (bytes, symbols) = (fs::read(&stripped)?, fs::read(&symbols)?);
    let needs = elf::check(&bytes).with_context(|| whole.display().to_string())?;
    let newest = needs.versions.iter().cloned().collect::<Vec<_>>().join(" ");
    let libraries = needs.libraries.into_iter().collect::<Vec<_>>().join(" ");
    println!("== {}: {} bytes; needs {libraries}; {newest}", whole.display(), bytes.len());
    Ok(Program { name, bytes, symbols })
}
