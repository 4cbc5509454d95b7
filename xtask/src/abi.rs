//! `cargo xtask abi`: generates Rust from the kernels' C headers.

use anyhow::Result;

use crate::run::{cargo, step};
use crate::setup;

/// Regenerates `kernels/src/abi.rs` with the pinned libclang, installed if missing.
pub fn abi() -> Result<()> {
    let libclang = setup::libclang()?;
    let mut generator = cargo(&["run", "--quiet", "--package", "precast-abi"]);
    step("parameter blocks", generator.env("LIBCLANG_PATH", libclang))
}
