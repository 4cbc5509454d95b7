//! Draws modules, and finds their circles.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::drawing;
use super::graph::{self, Arrows, ModulePath, Package};
use super::members::{Member, members};

/// The trainer's package, whose folders are floors.
pub(super) const TRAINER: &str = "precast";

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

/// Returns the folders of a package's modules, by place.
pub(super) fn folders(member: &Member) -> Result<BTreeMap<ModulePath, Arrows>> {
    let mut folders = BTreeMap::new();
    for root in &member.roots {
        folders.extend(Package::read(root)?.folders());
    }
    Ok(folders)
}

/// Returns a line per set of modules that use each other.
pub(super) fn circles(members: &[Member]) -> Result<Vec<String>> {
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
pub(super) fn pictures(members: &[Member]) -> Result<Vec<(PathBuf, String)>> {
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
