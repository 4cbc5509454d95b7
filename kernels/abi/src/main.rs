//! `precast-abi`: writes `kernels/src/abi.rs`, also while the kernels do not compile; `cargo xtask abi` installs
//! libclang where it is missing. For the headers of others it is `precast-aot abi`.

#![allow(clippy::print_stdout)]

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use precast_abi::libclang;
use precast_system::generated;

fn main() -> Result<ExitCode> {
    let [home, named] = ["PRECAST_HOME", libclang::VARIABLE].map(env::var_os);
    let folder = libclang::folder(&env::current_exe()?, home, named)
        .filter(|folder| libclang::is_in(folder))
        .context("no libclang: `cargo xtask abi` installs the pinned one and runs this program")?;
    if let Some(status) = precast_abi::again(&folder)? {
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    println!("libclang: {}", folder.display());
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let (folders, out) = (generated::folders(&kernels.join("src"))?, kernels.join("src/abi.rs"));
    let text = precast_abi::generate(&folders, "`kernels/src`", "cargo xtask abi")?;
    println!("{}: {}", out.display(), if precast_abi::put(&out, &text)? { "regenerated" } else { "as it was" });
    Ok(ExitCode::SUCCESS)
}
