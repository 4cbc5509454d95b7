//! `cargo xtask modules`: reads imports between the modules of each package. Draws the packages and the trainer's
//! floors for ARCHITECTURE.md, and refuses circles.

mod drawing;
mod graph;
mod imports;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::run::{cargo, output};
use graph::{Arrows, ModulePath, Package};

pub use graph::{shipped, sources};

/// The trainer's package, whose folders are floors.
const TRAINER: &str = "precast";

/// A package of the workspace: its dependencies among the others, and its sources.
pub struct Member {
    pub name: String,
    /// Holds `lib.rs`, `main.rs` or both.
    pub roots: Vec<PathBuf>,
    uses: Vec<String>,
}

/// Draws the packages and the trainer, prints the circles of every package, and fails if there is one.
pub fn modules() -> Result<()> {
    let members = members()?;
    for (path, picture) in pictures(&members)? {
        fs::write(&path, &picture).with_context(|| path.display().to_string())?;
        println!("{}: {} bytes", path.display(), picture.len());
    }
    let circles = circles(&members)?;
    ensure!(circles.is_empty(), "modules that use each other:\n{}", circles.join("\n"));
    println!("{} packages, no circle", members.len());
    Ok(())
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

/// Returns the folders of a package's modules, by place.
fn folders(member: &Member) -> Result<BTreeMap<ModulePath, Arrows>> {
    let mut folders = BTreeMap::new();
    for root in &member.roots {
        folders.extend(Package::read(root)?.folders());
    }
    Ok(folders)
}

/// Returns a line per set of modules that use each other.
fn circles(members: &[Member]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for member in members {
        for (folder, arrows) in folders(member)? {
            for circle in graph::circles(&arrows) {
                let circle: Vec<String> = circle.into_iter().collect();
                found.push(format!(
                    "{}: {}",
                    [std::slice::from_ref(&member.name), &folder].concat().join("::"),
                    circle.join(", ")
                ));
            }
        }
    }
    Ok(found)
}

/// Returns paths and contents of the two drawings.
fn pictures(members: &[Member]) -> Result<Vec<(PathBuf, String)>> {
    let packages: Arrows =
        members.iter().map(|member| (member.name.clone(), member.uses.iter().cloned().collect())).collect();
    let trainer = members.iter().find(|member| member.name == TRAINER).context("the trainer's package")?;
    let mut folders = folders(trainer)?;
    let floors = folders.remove(&Vec::new()).context("the trainer's floors")?;
    Ok(vec![
        (PathBuf::from("docs/packages.svg"), drawing::floors(&packages, &BTreeMap::new())),
        (PathBuf::from("docs/trainer.svg"), drawing::floors(&floors, &folders)),
    ])
}

#[cfg(test)]
mod tests;
