//! `cargo run -p precast-abi`: regenerates `kernels/src/abi.rs`. `cargo xtask abi` installs libclang before.

#![allow(clippy::print_stdout)]

use std::path::Path;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated = precast_abi::generate(folder, &folder.join("../../rustfmt.toml"))?;
    let path = folder.join("../src/abi.rs");
    let written = std::fs::read_to_string(&path).is_ok_and(|committed| committed == generated);
    if !written {
        std::fs::write(&path, &generated).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("kernels/src/abi.rs: {}", if written { "as it was" } else { "regenerated" });
    Ok(())
}
