//! `precast-abi [OUT FOLDER...]`: writes the Rust of the headers in these folders. `cargo run -p precast-abi` does so for
//! `kernels/src/abi.rs`, also while the kernels do not compile; `cargo xtask abi` installs libclang where it is missing.

#![allow(clippy::print_stdout)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use precast_abi::libclang;

fn main() -> Result<ExitCode> {
    let mut arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let (program, named) = (env::current_exe()?, env::var_os(libclang::VARIABLE));
    let folder = libclang::folder(&program, env::var_os("PRECAST_HOME"), named.clone())
        .context("no libclang: `cargo xtask abi` installs the pinned one and runs this program")?;
    // clang-sys reads the variable alone.
    if named.is_none_or(|named| Path::new(&named) != folder) {
        let status = Command::new(program).args(&arguments).env(libclang::VARIABLE, folder).status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    println!("libclang: {}", folder.display());
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
