//! Kernels as their C headers declare them, in Rust: parameter blocks, arguments, keys and operands.
//!
//! A header says everything once. Above a parameter block stands a line for each kernel that takes it; behind each address its
//! shape, dtype, access and, where they matter, condition and content of checks; behind each scalar its unit. A struct of scalars
//! that is an operand says so in a line `operand: dtype`, and its fields begin with what checks draw: `uniform(0.1, 1.0)`,
//! `below(2)`, or a number.
//!
//! ```c
//! /// cast { from: Dtype, to: Dtype }: Casts elements, rounding to nearest even.
//! typedef struct cast_params {
//!     address x; ///< [n] from, read
//!     address y; ///< [n] to, write
//!     uint64_t n;
//! } cast_params;
//! ```
//!
//! `kernels/src/abi.rs` is committed, so that a plain build needs no libclang. This package depends on nothing that is
//! made of it: where a header is wrong and the kernels do not compile, it still does.

mod declaration;
mod emit;
mod expression;
mod headers;
pub mod libclang;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The folders below `kernels` that have headers: those that all families share, and each family's own.
///
/// # Errors
/// Folders that cannot be listed.
pub fn folders(kernels: &Path) -> Result<Vec<PathBuf>> {
    let families = kernels.join("src");
    let mut folders = vec![kernels.join("abi")];
    for entry in families.read_dir().with_context(|| format!("cannot read {}", families.display()))? {
        let folder = entry?.path();
        let has_header = |name: &str| folder.join(format!("{name}.h")).exists();
        folders
            .extend(folder.file_name().and_then(|name| name.to_str()).is_some_and(has_header).then(|| folder.clone()));
    }
    folders.sort_unstable();
    Ok(folders)
}

/// The Rust of all headers of some folders.
///
/// # Errors
/// No libclang, a header that does not parse, a comment that does not declare an operand, or a struct with bytes that
/// belong to no field: they would be uninitialized in what is launched.
pub fn generate(folders: &[PathBuf], rustfmt: &Path) -> Result<String> {
    formatted(&emit::file(&headers::read(folders)?)?, rustfmt)
}

fn formatted(text: &str, rustfmt: &Path) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(rustfmt)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rustfmt")?;
    child.stdin.take().context("rustfmt has no input")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt refuses what was generated");
    Ok(String::from_utf8(output.stdout)?)
}
