//! Checks dependencies against `deny.toml`.

use std::process::Stdio;

use anyhow::Result;

use crate::run::{cargo, step};

/// Runs cargo-deny if it is installed: it takes ten minutes to compile. CI on GitHub has a job for it, with advisories.
pub fn check() -> Result<()> {
    let installed = cargo(&["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if installed.is_ok_and(|status| status.success()) {
        return step("dependencies", &mut cargo(&["deny", "check", "licenses", "bans", "sources"]));
    }
    println!(
        "\nskipped: cargo deny, which is not installed: `cargo install cargo-deny` (deny.toml is checked by CI's own \
        job)"
    );
    Ok(())
}
