//! `cargo xtask examples`: builds, runs and tests the programs of `docs/examples`, which are no members of the
//! workspace, and plants mistakes in one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, output, root};
use crate::setup;

/// Prints of saxpy: `y += 2 x` and `x += -1 y` of a ramp and of ones.
const SAXPY: [&str; 2] = ["x = [-1.0, -2.0, -3.0, -4.0] ... -5000.0\n", "y = [1.0, 3.0, 5.0, 7.0] ... 9999.0\n"];

/// A mistake in a file of saxpy, the command that finds it, and parts of the message.
struct Mistake {
    file: &'static str,
    before: &'static str,
    after: &'static str,
    command: &'static str,
    says: &'static [&'static str],
}

const MISTAKES: [Mistake; 8] = [
    Mistake {
        file: "src/saxpy/saxpy.cu",
        before: "store_vector(y, i, sums);",
        after: "store_vector(y, i / 2, sums);",
        command: "test",
        says: &["race", "src/saxpy/saxpy.cu:10", "src/saxpy/saxpy.cu:14"],
    },
    Mistake {
        file: "src/saxpy/saxpy.cu",
        before: "fmaf(p.a,",
        after: "fmaf(p.b,",
        command: "build",
        says: &["saxpy{x=", "--> src/saxpy/saxpy.cu:13"],
    },
    Mistake {
        file: "src/saxpy/saxpy.cu",
        before: "    float sums[VARIANT_WIDTH];",
        after: "    float sums[VARIANT_WIDTH]; float kept[64]; for (uint32_t k = 0; k < 64; k++) kept[(k * p.n) % 64] = p.a; \
                sums[0] = kept[i % 64]; y[0] = from_float<KEY_X>(sums[0]);",
        command: "build",
        says: &["kernels are over budget", "stack frame of", "(src/saxpy/saxpy.cu:5)"],
    },
    Mistake {
        file: "src/saxpy/saxpy.h",
        before: "[n] x, update",
        after: "[n] x, write",
        command: "build",
        says: &["precast-aot abi src/saxpy --out src/saxpy/abi.rs"],
    },
    Mistake {
        file: "src/saxpy/mod.rs",
        before: "[Dtype::F32, Dtype::Bf16].map",
        after: "[Dtype::Bf16].map",
        command: "run",
        says: &["are not in the bundle for sim", "saxpy{x=f32}", "Build them with: cargo build"],
    },
    Mistake {
        file: "build.rs",
        before: "\"sm_121\"",
        after: "\"sm_12\"",
        command: "build",
        says: &["no architecture sm_12: there are sm_80"],
    },
    Mistake {
        file: "build.rs",
        before: ".emit()",
        after: ".locked(\"locks\").emit()",
        command: "build",
        says: &["saxpy/locks/saxpy.lock: PRECAST_LOCK=1 cargo build writes it", "PRECAST_UNLOCKED=1 embeds them"],
    },
    Mistake {
        file: "src/saxpy/mod.rs",
        before: "abi::OPS",
        after: "{ const TWICE: &[Op] = &[abi::OPS[0], abi::OPS[0]]; TWICE }",
        command: "build",
        says: &["two operations have one name", "src/saxpy/mod.rs"],
    },
];

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
fn command(folder: &Path, target: &str, arguments: &[&str]) -> Result<Command> {
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

/// Builds, runs and tests every example, and plants mistakes in saxpy.
pub fn all() -> Result<()> {
    setup::compiler()?;
    setup::debian(&["g++"])?;
    saxpy()?;
    for folder in folders()? {
        crate::run::step(&format!("test {}", folder.display()), &mut command(&folder, "target", &["test"])?)?;
    }
    MISTAKES.iter().try_for_each(planted)?;
    locked()?;
    bundles()
}

/// Target folder of copies. Cargo takes two packages of one name and version, each the root of its workspace, for one.
const OF_COPIES: &str = "target/mistaken/target";

/// Plants a mistake in a copy of saxpy, and reads the message.
fn planted(Mistake { file, before, after, command: name, says }: &Mistake) -> Result<()> {
    println!("\n== planted in {file}: {after}");
    let copy = copied(&[(file, before, after)])?;
    fails(&mut command(&copy, OF_COPIES, &[name])?, says)
}

/// Locks the kernels of a copy of saxpy, and then changes one.
fn locked() -> Result<()> {
    println!("\n== locked, and then changed");
    let locked = ("build.rs", ".emit()", ".locked(\"locks\").emit()");
    let copy = copied(&[locked])?;
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
    let copy = copied(&[])?;
    output(command(&copy, OF_COPIES, &["build"])?.env("PRECAST_BUNDLE", folder.join("precast.bundle")))?;
    let from_it = |copy: &Path| {
        command(copy, OF_COPIES, &["run"]).map(|mut run| {
            run.env("PRECAST_FATBINS", &folder).env("PRECAST_NVRTC", "/no/nvrtc");
            run
        })
    };
    let printed = output(&mut from_it(&copy)?)?;
    ensure!(SAXPY.iter().all(|line| printed.contains(line)), "{printed}");
    let copy = copied(&[("src/saxpy/saxpy.cu", "fmaf(p.a,", "fmaf(2.0f * p.a,")])?;
    fails(&mut from_it(&copy)?, &["STALE   saxpy{x=", "Build them with: cargo build"])?;
    let copy = copied(&[("src/saxpy/mod.rs", "\"saxpy\", abi::OPS", "\"other\", abi::OPS")])?;
    fails(&mut from_it(&copy)?, &["the bundle is of the program `saxpy`, and this is `other`", "cargo build"])
}

/// Copies saxpy with edits of its files, each a file, a text in it and another; as far below the checkout as saxpy is.
fn copied(edits: &[(&str, &str, &str)]) -> Result<PathBuf> {
    let copy = root().canonicalize()?.join("target/mistaken/saxpy");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    let listed = output(Command::new("git").args(["ls-files", "-co", "--exclude-standard", "docs/examples/saxpy"]))?;
    for path in listed.lines() {
        let to = copy.join(path.trim_start_matches("docs/examples/saxpy/"));
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        let mut text = fs::read_to_string(path)?;
        for (_, before, after) in edits.iter().filter(|(file, ..)| path.ends_with(file)) {
            ensure!(text.contains(before), "{path} is no longer what this mistake changes: {before}");
            text = text.replace(before, after);
        }
        fs::write(to, text)?;
    }
    Ok(copy)
}

/// Runs a command that must fail, and say so.
fn fails(command: &mut Command, says: &[&str]) -> Result<()> {
    let ended = command.output()?;
    let text = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    ensure!(!ended.status.success(), "nothing is found:\n{text}");
    for part in says {
        ensure!(text.contains(part), "the message lacks `{part}`:\n{text}");
    }
    println!("found: {}", says.join(", "));
    Ok(())
}
