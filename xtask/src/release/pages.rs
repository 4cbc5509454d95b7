//! Collects completions and manual pages, as the trainer prints them, for archives.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::environment::clean;
use super::files::Entry;
use crate::run::output;

/// Shells, and where each looks for completions below a prefix.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/precast"),
    ("fish", "share/fish/vendor_completions.d/precast.fish"),
    ("zsh", "share/zsh/site-functions/_precast"),
];

/// Returns both, of a trainer that runs here.
pub fn pages(trainer: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (shell, path) in SHELLS {
        entries.push(Entry::text(path, output(clean(trainer).args(["completions", shell]))?));
    }
    let dir = tempfile::tempdir()?;
    let man = dir.path().join("man");
    output(clean(trainer).arg("man").arg(&man))?;
    for entry in fs::read_dir(&man)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a page has a name")?;
        entries.push(Entry::text(format!("share/man/man1/{name}"), fs::read(&path)?));
    }
    Ok(entries)
}
