//! Packages of the workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{cargo, output};

/// A package of the workspace: its dependencies among the others, and its sources.
pub struct Member {
    pub name: String,
    /// Holds `lib.rs`, `main.rs` or both.
    pub roots: Vec<PathBuf>,
    pub(super) uses: Vec<String>,
}

/// Returns every package of the workspace, as cargo lists them.
pub fn members() -> Result<Vec<Member>> {
    let listed = output(
        cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(crate::run::root()),
    )?;
    let listed: Value = serde_json::from_str(&listed)?;
    let packages = listed["packages"].as_array().context("packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shipped = |target: &&Value| {
        let kinds = target["kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| ["lib", "bin", "cdylib"].iter().any(|own| kind == own)))
    };
    let mut members: Vec<Member> = Vec::new();
    for package in packages {
        let targets = package["targets"].as_array().context("targets")?;
        let root = |target: &Value| Path::new(&text(&target["src_path"])).parent().map(Path::to_owned);
        let mut roots: Vec<PathBuf> = targets.iter().filter(shipped).filter_map(root).collect();
        roots.sort();
        roots.dedup();
        let needed = package["dependencies"].as_array().context("dependencies")?.iter();
        let needed = needed.filter(|needed| needed["kind"].is_null() && !needed["path"].is_null());
        members.push(Member {
            name: text(&package["name"]),
            roots,
            uses: needed.map(|needed| text(&needed["name"])).collect(),
        });
    }
    Ok(members)
}
