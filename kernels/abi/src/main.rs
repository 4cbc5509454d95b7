//! `precast-abi [OUT FOLDER...]`: writes the Rust of the headers in these folders. `cargo run -p precast-abi` does so for
//! `kernels/src/abi.rs`, also while the kernels do not compile; `cargo xtask abi` installs libclang where it is missing.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

/// Variable in which clang-sys finds the folder of libclang.
const LIBCLANG: &str = "LIBCLANG_PATH";

fn main() -> Result<ExitCode> {
    let mut arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if let (None, Some(installed)) = (std::env::var_os(LIBCLANG), installed()) {
        let status = Command::new(std::env::current_exe()?).args(&arguments).env(LIBCLANG, installed).status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    if arguments.is_empty() {
        arguments.push(kernels.join("src/abi.rs"));
        arguments.extend(precast_abi::folders(&kernels)?);
    }
    ensure!(arguments.len() > 1, "expected OUT FOLDER...");
    let generated = precast_abi::generate(&arguments[1..], &kernels.join("../rustfmt.toml"))?;
    let path = &arguments[0];
    let unchanged = std::fs::read_to_string(path).is_ok_and(|committed| committed == generated);
    if !unchanged {
        std::fs::write(path, &generated).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{}: {}", path.display(), if unchanged { "as it was" } else { "regenerated" });
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
