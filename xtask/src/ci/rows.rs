//! A trainer with the kernels of all architectures, and architectures with equal instructions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use precast_kernels::Arch;
use precast_models::{Model, SHARED_LOCK};

use super::checkout::aot;
use super::reproducible::same;
use crate::run::{cargo, output, step};

/// Most bytes of a stripped trainer with every row.
const MOST_BYTES: u64 = 35_000_000;

/// Builds it, reads each bundle back, and compares the instructions of sm_120 and sm_121.
pub fn check() -> Result<()> {
    let build = ["build", "--release", "--locked", "--features", "all", "--config", "profile.release.strip=true"];
    step("a trainer for all architectures", &mut cargo(&build))?;
    let trainer = Path::new("target/release/precast");
    let bytes = fs::metadata(trainer)?.len();
    ensure!(bytes <= MOST_BYTES, "a trainer for all architectures has {bytes} bytes, more than {MOST_BYTES}");
    println!("== it has {bytes} bytes");
    let dir = tempfile::tempdir()?;
    let [built, written] = ["built", "written"].map(|name| dir.path().join(name));
    [&built, &written].into_iter().try_for_each(fs::create_dir)?;
    let models: Vec<String> = Model::built_in().into_iter().map(|model| model.name).collect();
    let said = output(Command::new(trainer).args(["--version", "--verbose"]))?;
    let rows = Arch::GPUS.map(|arch| format!("bundle of {}: ", arch.argument()));
    for name in rows.into_iter().chain([format!("lock of {SHARED_LOCK}: ")]) {
        ensure!(said.contains(&name), "--version --verbose has no {name}\n{said}");
    }
    for arch in Arch::GPUS {
        let (row, file) = (arch.argument(), arch.name());
        let mut build = Command::new(aot());
        build.args(["build", "--locked", "--arch", row]).args(models.iter().flat_map(|model| ["--model", model]));
        step(&format!("the bundle of {arch}"), build.arg("--out").arg(built.join(file)))?;
        let kernels = ["kernels", "--arch", row, "--write"];
        step("as the trainer gives it back", Command::new(trainer).args(kernels).arg(written.join(file)))?;
        same(file, &built, &written)?;
    }
    let [rtx, spark] = [Arch::Sm120, Arch::Sm121].map(|arch| built.join(arch.name()));
    let what = "sm_120 and sm_121 have equal instructions";
    step(what, Command::new(aot()).args(["diff", "--code"]).args([rtx, spark]))
}
