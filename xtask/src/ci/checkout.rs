//! The checkout, and programs to run there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::listed;

/// Returns the path of `precast-aot` as the tests built it.
pub(super) fn aot() -> PathBuf {
    PathBuf::from("target/release/precast-aot")
}

/// Copies the checkout's tracked and new files into a directory.
pub fn copy_checkout(to: &Path) -> Result<()> {
    for name in listed(&[])? {
        let to = to.join(&name);
        std::fs::create_dir_all(to.parent().context("a file lies in a directory")?)?;
        std::fs::copy(&name, to).context(name)?;
    }
    Ok(())
}

/// Returns a command's program with its arguments, in a network namespace of its own, which has no network.
pub(super) fn without_network(plain: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-rn", "--"]).arg(plain.get_program()).args(plain.get_args());
    command
}
