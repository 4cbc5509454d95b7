//! `cargo xtask`: starts the program of a command. It depends on nothing, so nothing is built for it.
//!
//! `simt NAME` is the program of `xtask/simt`. That reads the CUDA sources from disk: where nothing else that it is
//! made of has changed since cargo built it, it runs as it is, and a verdict on a kernel takes as long as the kernel;
//! after an edit of a header `abi.rs` is made again first. `abi` is the program of `kernels/abi`: it works while the
//! kernels do not compile. All others are `xtask`'s.

#[path = "../../../kernels/abi/src/libclang.rs"]
mod libclang;
mod made;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::SystemTime;

/// The program of `xtask/simt`, and its package.
const CHECKER: &str = "xtask-simt";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = match &arguments[..] {
        [abi] if abi == "abi" && libclang(false).is_some() => {
            Ok(cargo(&["run", "--quiet", "--package", "precast-abi"], &[]))
        }
        [simt, names @ ..] if simt == "simt" && names.first().is_some_and(|name| !name.starts_with('-')) => {
            checker(names)
        }
        _ => Ok(cargo(&["run", "--quiet", "--package", "xtask", "--"], &arguments)),
    };
    let error = command.map_or_else(|error| error, |mut command| command.exec());
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// The checker of kernels as it was built, where it is still made of what is there; else built first.
fn checker(names: &[String]) -> io::Result<Command> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    // Cargo puts programs side by side, wherever its target folder is.
    let program = std::env::current_exe()?.with_file_name(CHECKER);
    if !made::is_of_what_is_there(&program, &root) {
        let started = SystemTime::now();
        // Of headers as they are; without libclang, as they were at the last `cargo xtask abi`.
        if libclang(true).is_some() && !cargo(&["run", "--quiet", "--package", "precast-abi"], &[]).status()?.success()
        {
            return Err(io::Error::other("kernels/src/abi.rs is not made"));
        }
        if !cargo(&["build", "--quiet", "--package", CHECKER], &[]).status()?.success() {
            return Err(io::Error::other(format!("{CHECKER} is not built")));
        }
        made::write(&program, started)?;
    }
    let mut command = Command::new(program);
    command.args(names).current_dir(root);
    Ok(command)
}

/// The folder of the libclang that `precast-abi` would use. If the pinned one is missing, `cargo xtask abi` installs
/// it, and only others may do with that which the variable names.
fn libclang(by_variable: bool) -> Option<PathBuf> {
    let named = std::env::var_os(libclang::VARIABLE).filter(|_| by_variable);
    let folder = libclang::folder(&std::env::current_exe().ok()?, std::env::var_os("PRECAST_HOME"), named);
    folder.filter(|folder| libclang::is_in(folder))
}

/// Cargo, as it was called.
fn cargo(arguments: &[&str], more: &[String]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).args(more);
    command
}
