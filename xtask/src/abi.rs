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

#[cfg(test)]
mod tests {
    use precast_aot::toolchain::pins::LIBCLANG;

    #[test]
    fn the_generator_looks_for_the_pinned_libclang() {
        let text = std::fs::read_to_string(crate::run::root().join("kernels/abi/src/libclang.rs")).unwrap();
        let folder = format!("PINNED: &str = \"{}-{}\";", LIBCLANG.package, LIBCLANG.version);
        assert!(text.contains(&folder), "{folder}");
    }
}
