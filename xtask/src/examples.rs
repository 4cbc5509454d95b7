//! `cargo xtask examples`: builds, runs and tests the programs of `docs/examples`, which are no members of the
//! workspace, and plants mistakes in two.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::planted::{Edit, Mistake, edited, fails, mistakes};
use crate::run::{cargo, listed, output, root};
use crate::setup;

/// Prints of saxpy: `y += 2 x` and `x += -1 y` of a ramp and of ones.
const SAXPY: [&str; 2] = ["x = [-1.0, -2.0, -3.0, -4.0] ... -5000.0\n", "y = [1.0, 3.0, 5.0, 7.0] ... 9999.0\n"];

/// Returns the folders of the examples.
fn folders() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir("docs/examples")?.collect::<Result<Vec<_>, _>>()?;
    let mut folders: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.sort_unstable();
    Ok(folders)
}

/// Returns a cargo command in an example's folder that shares a target folder, and this checkout's profile and
/// compiler: what both need is compiled once.
pub fn command(folder: &Path, target: &str, arguments: &[&str]) -> Result<Command> {
    let root = root().canonicalize()?;
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let profile = manifest.split_once("[profile.dev]").and_then(|(_, rest)| rest.split_once("[profile.release]"));
    let (profile, _) = profile.context("Cargo.toml has the profile of tests before that of releases")?;
    let config = root.join("target/examples.toml");
    fs::write(&config, format!("[profile.dev]{profile}"))?;
    let mut command = cargo(arguments);
    command.arg("--locked").arg("--config").arg(config).current_dir(folder);
    command.env("CARGO_TARGET_DIR", root.join(target)).env("PRECAST_HOME", root.join("target/precast"));
    Ok(command)
}

/// Builds saxpy and runs it on the simulated GPU.
pub fn saxpy() -> Result<()> {
    println!("\n== example: saxpy, a program of its own");
    let printed = output(&mut command(Path::new("docs/examples/saxpy"), "target", &["run", "--quiet"])?)?;
    print!("{printed}");
    ensure!(SAXPY.iter().all(|line| printed.contains(line)), "saxpy is to print\n{}", SAXPY.concat());
    Ok(())
}

/// Builds, runs and tests every example, and plants mistakes in saxpy and plain.
pub fn all() -> Result<()> {
    setup::compiler()?;
    setup::debian(&["g++"])?;
    saxpy()?;
    for folder in folders()? {
        crate::run::step(&format!("test {}", folder.display()), &mut command(&folder, "target", &["test"])?)?;
    }
    for example in ["saxpy", "plain"] {
        mistakes(example)?.iter().try_for_each(|mistake| planted(example, mistake))?;
    }
    locked()?;
    bundles()
}

/// Target folder of copies. Cargo takes two packages of one name and version, each the root of its workspace, for one.
pub const OF_COPIES: &str = "target/mistaken/target";

/// Plants a mistake in a copy of an example, and reads the message.
fn planted(example: &str, mistake: &Mistake) -> Result<()> {
    println!("\n== planted: {}", mistake.what);
    fails(&mut command(&copied(example, &mistake.edits)?, OF_COPIES, &[&mistake.command])?, &mistake.says)
}

/// Locks the kernels of a copy of saxpy, and then changes one.
fn locked() -> Result<()> {
    println!("\n== locked, and then changed");
    let copy = copied("saxpy", &[["build.rs", ".emit()", ".locked(\"locks\").emit()"].map(str::to_owned)])?;
    output(command(&copy, OF_COPIES, &["build"])?.env("PRECAST_LOCK", "1"))?;
    output(&mut command(&copy, OF_COPIES, &["build"])?)?;
    let source = copy.join("src/saxpy/saxpy.cu");
    let text = fs::read_to_string(&source)?;
    fs::write(&source, text.replace("fmaf(p.a,", "fmaf(2.0f * p.a,"))?;
    let says = ["kernels are not the locked ones", "PRECAST_LOCK=1 cargo build, and commit", "source"];
    fails(&mut command(&copy, OF_COPIES, &["build"])?, &says)
}

/// Builds a copy of saxpy from a bundle in place of a compiler, and refuses one of other sources or of another program.
fn bundles() -> Result<()> {
    println!("\n== a bundle in place of a compiler");
    let folder = root().canonicalize()?.join("target/mistaken/bundle");
    let copy = copied("saxpy", &[])?;
    output(command(&copy, OF_COPIES, &["build"])?.env("PRECAST_BUNDLE", folder.join("precast.bundle")))?;
    let from_it = |copy: &Path| {
        command(copy, OF_COPIES, &["run"]).map(|mut run| {
            run.env("PRECAST_FATBINS", &folder).env("PRECAST_NVRTC", "/no/nvrtc");
            run
        })
    };
    let printed = output(&mut from_it(&copy)?)?;
    ensure!(SAXPY.iter().all(|line| printed.contains(line)), "{printed}");
    let copy = copied("saxpy", &[["src/saxpy/saxpy.cu", "fmaf(p.a,", "fmaf(2.0f * p.a,"].map(str::to_owned)])?;
    fails(&mut from_it(&copy)?, &["STALE   saxpy{x=", "Build them with: cargo build"])?;
    let copy =
        copied("saxpy", &[["src/saxpy/mod.rs", "\"saxpy\", abi::OPS", "\"other\", abi::OPS"].map(str::to_owned)])?;
    fails(&mut from_it(&copy)?, &["the bundle belongs to the program `saxpy`, and this is `other`", "cargo build"])
}

/// Copies an example with edits of its files; as far below the checkout as the example is.
pub fn copied(example: &str, edits: &[Edit]) -> Result<PathBuf> {
    let (copy, from) =
        (root().canonicalize()?.join("target/mistaken").join(example), format!("docs/examples/{example}"));
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    for path in listed(&[&from])? {
        let to = copy.join(path.trim_start_matches(&format!("{from}/")));
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        let mut text = fs::read_to_string(&path)?;
        for edit in edits.iter().filter(|[file, ..]| path.ends_with(file)) {
            text = edited(&text, edit)?;
        }
        fs::write(to, text)?;
    }
    Ok(copy)
}
