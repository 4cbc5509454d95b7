//! Files in memory, on their way into an archive.

use std::path::Path;

use anyhow::{Context, Result};

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path in the archive.
    pub path: String,
    pub bytes: Vec<u8>,
    pub is_program: bool,
}

impl Entry {
    pub fn text(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), is_program: false }
    }

    pub fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), is_program: true }
    }

    /// Permissions: executable for everybody if it is a program.
    pub fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }
}

/// Reads a file of the checkout.
pub fn read(checkout: &Path, name: &str) -> Result<Vec<u8>> {
    let path = checkout.join(name);
    std::fs::read(&path).with_context(|| path.display().to_string())
}
