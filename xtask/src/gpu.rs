//! `cargo xtask gpu DIR [GOLDEN]`: packs every GPU check for a machine without Rust.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use precast_models::Model;
use serde_json::Value;

use crate::run::{FEATURES, cargo, output, step};
use crate::{examples, golden, setup};

/// Packs the programs, the whole-program tests, kernels for their models, and the script that runs everything. From the
/// checkout's root on the other machine: `DIR/run.sh`. Golden cases that are named lie in `DIR/golden`, and are
/// compared there.
pub fn pack(directory: &Path, named: Option<&Path>) -> Result<()> {
    let mut cases = golden::cases("tests/fixtures/golden".as_ref())?;
    cases.push("tests/fixtures/experts-int8".into());
    let named = named.map(golden::cases).transpose()?;
    setup::compiler()?;
    step("build", &mut cargo(&["build", "--release", "--workspace", "--features", FEATURES]))?;
    fs::create_dir_all(directory)?;
    let tests = test_program()?;
    let programs =
        [("target/release/precast", "precast"), ("target/release/precast-aot", "precast-aot"), (&tests, "programs")];
    for (from, name) in programs {
        let to = directory.join(name);
        fs::copy(from, &to).with_context(|| format!("cannot copy {from}"))?;
        // Symbols are most of a test program's size, and unused there.
        step(&format!("strip {name}"), std::process::Command::new("strip").arg(&to))?;
    }
    for example in ["plain", "ports"] {
        step(example, &mut examples::command(&Path::new("docs/examples").join(example), "target", &["build"])?)?;
        fs::copy(Path::new("target/debug").join(example), directory.join(example)).context(example)?;
    }
    let bundle = directory.join("tests.bundle");
    let mut build = std::process::Command::new("target/release/precast-aot");
    build.args(["build", "--arch", "sm_89,sm_90,sm_90_portable,sm_121", "--out"]).arg(bundle);
    if let Some(named) = named {
        let copies = directory.join("golden");
        fs::create_dir_all(&copies)?;
        step("golden cases", std::process::Command::new("cp").arg("-rL").args(&named).arg(&copies))?;
        cases.extend(named);
    }
    let models = cases.iter().flat_map(|case| ["teacher", "student"].map(|role| case.join(role)));
    // The tests say which ones are of families that nothing here computes.
    for model in models.filter(|model| Model::find(&model.display().to_string()).is_ok()) {
        build.arg("--model").arg(model);
    }
    for model in fs::read_dir("tests/models").context("tests/models")? {
        build.arg("--model").arg(model?.path());
    }
    step("kernels for the tests' models", &mut build)?;
    let mut build = std::process::Command::new("target/release/precast-aot");
    build.args(["build", "--arch", "sm_90_portable", "--out"]).arg(directory.join("portable.bundle"));
    step("the portable kernels of the built-in models for a Hopper", &mut build)?;
    for script in ["run.sh", "qwen.sh"] {
        fs::copy(Path::new("xtask/gpu").join(script), directory.join(script)).with_context(|| script.to_owned())?;
    }
    Ok(())
}

/// Returns the path of the whole-program tests.
fn test_program() -> Result<String> {
    let mut build = cargo(&["test", "--release", "--features", FEATURES, "--test", "programs", "--no-run"]);
    let messages = output(build.args(["--message-format", "json"]))?;
    let mut executable = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "programs").then(|| message["executable"].as_str().map(str::to_owned))?
    });
    executable.next_back().context("cargo names the test program")
}
