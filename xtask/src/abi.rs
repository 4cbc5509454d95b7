//! `cargo xtask abi`: kernels as their C headers declare them, in Rust.

use anyhow::Result;

use crate::run::{cargo, step};
use crate::setup;

/// Regenerates `kernels/src/abi.rs` with the pinned libclang, which it installs where it is not there.
pub fn abi() -> Result<()> {
    let libclang = setup::libclang()?;
    let mut generator = cargo(&["run", "--quiet", "--package", "precast-abi"]);
    step("parameter blocks", generator.env("LIBCLANG_PATH", libclang))
}
