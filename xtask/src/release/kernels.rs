//! The kernels of a release: published by the program of this machine, which was just built.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use precast_aot::home;
use precast_fatbins::{Bundle, Digest};
use precast_kernels::{Arch, KERNELS};

use super::environment::clean;
use crate::run::{output, step};

/// Publishes the locked kernels of every model and row; returns the tar file. Nobody signs in it, so that a key changes
/// no byte: the sums, which are signed, have its digest.
pub fn published(checkout: &Path, programs: &Path) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let tar = dir.path().join("kernels.tar");
    let mut publish = clean(programs.join("precast-aot"));
    publish.current_dir(checkout).env("PRECAST_HOME", home::directory().canonicalize()?);
    let rows = Arch::GPUS.map(Arch::argument).join(",");
    step("the kernels", publish.args(["publish", "--arch", &rows, "--to"]).arg(&tar))?;
    Ok(fs::read(tar)?)
}

/// Returns the digest of each row's bundle in the trainer.
pub fn bundles(programs: &Path) -> Result<BTreeMap<String, Digest>> {
    let dir = tempfile::tempdir()?;
    let digest = |arch: Arch| {
        let (row, file) = (arch.argument(), dir.path().join(arch.name()));
        output(clean(programs.join("precast")).args(["kernels", "--arch", row, "--write"]).arg(&file))?;
        let bytes = fs::read(&file)?;
        let bundle = Bundle::read(&bytes, &KERNELS).with_context(|| format!("the bundle of {row}"))?;
        Ok((row.to_owned(), bundle.digest()))
    };
    Arch::GPUS.into_iter().map(digest).collect()
}
