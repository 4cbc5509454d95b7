//! `cargo run -p precast-abi`: regenerates `kernels/src/abi.rs`, also while the kernels do not compile. `cargo xtask abi`, which
//! is made of them, installs libclang before.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// Where clang-sys looks for libclang when it is first called.
const LIBCLANG: &str = "LIBCLANG_PATH";

fn main() -> Result<ExitCode> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let (None, Some(installed)) = (std::env::var_os(LIBCLANG), installed()) {
        let status = Command::new(std::env::current_exe()?).env(LIBCLANG, installed).status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let generated = precast_abi::generate(folder, &folder.join("../../rustfmt.toml"))?;
    let path = folder.join("../src/abi.rs");
    let written = std::fs::read_to_string(&path).is_ok_and(|committed| committed == generated);
    if !written {
        std::fs::write(&path, &generated).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("kernels/src/abi.rs: {}", if written { "as it was" } else { "regenerated" });
    Ok(ExitCode::SUCCESS)
}

/// The libclang that `cargo xtask` has installed, in the target folder that this program lies in.
fn installed() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let target = program.parent()?.parent()?;
    let home = std::env::var_os("PRECAST_HOME").map_or_else(|| target.join("precast"), PathBuf::from);
    let toolchain = home.join("toolchain").read_dir().ok()?.flatten().map(|entry| entry.path());
    toolchain.into_iter().find(|path| path.join("libclang.so").exists())
}
