//! `precast completions` and `precast man`: what shells and people know of the command line.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use precast_fatbins::say;

use crate::error::Failure;

#[derive(Args)]
pub struct Completions {
    /// bash, elvish, fish, powershell or zsh
    shell: Shell,
}

#[derive(Args)]
pub struct Man {
    /// Where to write the pages: a new or empty directory
    directory: PathBuf,
}

/// Prints what a shell completes.
pub fn completions(arguments: &Completions) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Arguments::command(), "precast", &mut script);
    say!("{}", String::from_utf8_lossy(&script).trim_end());
}

/// Writes a page for each command.
pub fn man(arguments: &Man) -> Result<(), Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory).map_err(Failure::io("create", directory))?;
    let mut inside = std::fs::read_dir(directory).map_err(Failure::io("read", directory))?;
    if inside.next().is_some() {
        let error = std::io::Error::new(ErrorKind::AlreadyExists, "it is not empty: name a new directory");
        return Err(Failure::io("write to", directory)(error));
    }
    clap_mangen::generate_to(super::Arguments::command(), directory).map_err(Failure::io("write", directory))?;
    say!("{}", directory.display());
    Ok(())
}
