//! Publishes each crate that others may depend on, but for the upload: builds each from what it holds, and a trainer
//! with kernels from all of them. No path leaves a package.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::release::environment::cargo_home;
use crate::run::{cargo, output, step};
use crate::setup;

/// Size limit of a compressed package, bytes: sources and the lock stay far below it, and no fixture is as large.
const MOST_BYTES: u64 = 2 << 20;

/// Fields of a package that a registry shows.
const SHOWN: [&str; 5] = ["description", "license", "readme", "keywords", "categories"];

/// Packages all that are [`published`], and builds from the packages.
pub fn check() -> Result<()> {
    setup::compiler()?;
    let published = published()?;
    // Cargo takes a package of one version for the one that it has unpacked and built: both places are new.
    let dir = tempfile::tempdir()?;
    let [home, target] = ["cargo", "target"].map(|name| dir.path().join(name));
    let own = std::path::absolute(cargo_home()?)?;
    fs::create_dir_all(home.join("registry"))?;
    // With the lock of what is shared.
    let shared = ["registry/index", "registry/cache", ".package-cache", "config.toml"].into_iter();
    shared.filter(|name| own.join(name).exists()).try_for_each(|name| symlink(own.join(name), home.join(name)))?;
    let packages = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command.env("CARGO_HOME", &home).env("CARGO_TARGET_DIR", &target);
        command
    };
    // It asks the registry for what is there already. The packages stay where `trainer` finds them.
    let mut package = packages(&["publish", "--dry-run", "--allow-dirty"]);
    package.args(published.names.iter().flat_map(|(name, _)| ["--package", name]));
    step("each package builds from what it holds", &mut package)?;
    trainer(&published, &target, packages(&["build", "--offline", "--features", "sm_121"]))
}

/// Packages that others may depend on.
pub struct Published {
    /// Name and version of each.
    pub names: Vec<(String, String)>,
    /// Target folder of the workspace.
    target: PathBuf,
}

/// Lists all but what says `publish = false`. Each has what a registry shows.
pub fn published() -> Result<Published> {
    let listed = output(&mut cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]))?;
    let listed: Value = serde_json::from_str(&listed)?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("cargo names its packages");
    let is_private = |found: &&Value| found["publish"].as_array().is_some_and(Vec::is_empty);
    let mut names = Vec::new();
    for found in listed["packages"].as_array().context("cargo lists packages")?.iter().filter(|it| !is_private(it)) {
        let name = text(&found["name"])?;
        let is_shown = |field: &&str| {
            !matches!(found.get(*field), None | Some(Value::Null)) && found[*field] != serde_json::json!([])
        };
        let lacking: Vec<&str> = SHOWN.into_iter().filter(|field| !is_shown(field)).collect();
        ensure!(lacking.is_empty(), "{name} has no {}", lacking.join(", "));
        names.push((name, text(&found["version"])?));
    }
    Ok(Published { names, target: PathBuf::from(text(&listed["target_directory"])?) })
}

/// Builds a trainer with kernels where there is nothing but packages: its build script finds the lock in one of them.
fn trainer(published: &Published, target: &Path, mut build: Command) -> Result<()> {
    let dir = tempfile::tempdir()?;
    for (name, version) in &published.names {
        let file = target.join("package/tmp-crate").join(format!("{name}-{version}.crate"));
        let bytes = fs::metadata(&file).with_context(|| file.display().to_string())?.len();
        ensure!(bytes <= MOST_BYTES, "{} has {bytes} bytes, more than {MOST_BYTES}", file.display());
        output(Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(dir.path()))?;
        let folder = dir.path().join(format!("{name}-{version}"));
        match name.as_str() {
            "precast" => build.current_dir(folder),
            _ => build.arg("--config").arg(format!("patch.crates-io.{name}.path={:?}", folder.display().to_string())),
        };
    }
    build.env("PRECAST_HOME", published.target.join("precast"));
    step("a trainer with kernels, of packages alone", &mut build)?;
    let listed = output(Command::new(target.join("debug/precast")).arg("kernels"))?;
    ensure!(listed.lines().any(|line| line.starts_with("sm_121")), "no kernel is embedded:\n{listed}");
    Ok(())
}
