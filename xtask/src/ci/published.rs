//! Checks signing and publishing by stock programs: minisign, skopeo, cuobjdump, nvdisasm, and a reader written from
//! the format's specification alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use precast_aot::lock;
use precast_fatbins::{Bundle, Digest, Lock};
use precast_kernels::{Arch, KERNELS};
use precast_models::{Model, Selection};
use rayon::prelude::*;

use super::checkout::aot;
use crate::run::{output, step};
use crate::setup;

/// Signs, publishes and fetches; leaves `precast.tar` and the public key in `out`.
pub fn check(out: &Path) -> Result<()> {
    fs::create_dir_all(out)?;
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let tar = out.join("precast.tar");
    let key = path("ci.key");
    step("a key", Command::new(aot()).args(["sign", "--new-key", "--key"]).arg(&key))?;
    step("publish", Command::new(aot()).arg("publish").arg("--key").arg(&key).arg("--to").arg(&tar))?;
    let public = fs::read_to_string(path("ci.key.pub"))?;
    let public = public.lines().nth(1).context("a public key")?.to_owned();
    fs::write(out.join("precast.pub"), fs::read(path("ci.key.pub"))?)?;
    let fetch = |from: &Path, to: &Path| {
        step(
            "fetch",
            Command::new(aot()).args(["fetch", "--trusted-key", &public, "--from"]).arg(from).arg("--to").arg(to),
        )
    };
    let installed = out.join("published");
    fetch(&tar, &installed)?;

    let bundle = installed.join("precast.bundle");
    step("minisign takes our signature", Command::new("minisign").args(["-V", "-P", &public, "-m"]).arg(&bundle))?;
    minisigned(dir.path(), &bundle)?;
    skopeo(dir.path(), &tar)?;
    fetch(&path("copied"), &path("fetched"))?;
    ensure!(fs::read(path("fetched/precast.bundle"))? == fs::read(&bundle)?, "skopeo's copy holds another bundle");

    let listed = output(Command::new("python3").arg("tests/read_bundle.py").arg(&bundle))?;
    ensure!(digests_of(&listed) == locked(&installed, "")?, "the Python reader finds other digests than the locks");
    tools(dir.path(), &bundle, &installed)
}

/// Checks that our verification accepts minisign's signatures and refuses others.
fn minisigned(dir: &Path, bundle: &Path) -> Result<()> {
    let (key, public, file) = (dir.join("stock.key"), dir.join("stock.pub"), dir.join("stock.bundle"));
    fs::copy(bundle, &file)?;
    let mut generate = Command::new("minisign");
    step("minisign makes a key", generate.arg("-G").arg("-W").arg("-s").arg(&key).arg("-p").arg(&public))?;
    step("minisign signs", Command::new("minisign").arg("-S").arg("-s").arg(&key).arg("-m").arg(&file))?;
    let verify = |file: &Path| {
        let mut verify = Command::new(aot());
        verify.arg("verify").arg(file).arg("--trusted-key").arg(&public);
        verify
    };
    step("ours takes minisign's signature", &mut verify(&file))?;
    let refused = verify(bundle).output()?;
    ensure!(refused.status.code() == Some(3), "a bundle signed with another key ends with {}", refused.status);
    Ok(())
}

/// Copies both manifests of a published tar file, unpacked, to a new layout.
fn skopeo(dir: &Path, tar: &Path) -> Result<()> {
    let from = dir.join("layout");
    fs::create_dir(&from)?;
    step("unpack", Command::new("tar").arg("-xf").arg(tar).arg("-C").arg(&from))?;
    let index: serde_json::Value = serde_json::from_slice(&fs::read(from.join("index.json"))?)?;
    for manifest in index["manifests"].as_array().context("manifests")? {
        let tag = manifest["annotations"]["org.opencontainers.image.ref.name"].as_str().context("a tag")?;
        let at = |layout: &Path| format!("oci:{}:{tag}", layout.display());
        let mut copy = Command::new("skopeo");
        copy.args(["copy", "--insecure-policy", "--preserve-digests", &at(&from), &at(&dir.join("copied"))]);
        step(&format!("skopeo copies {tag}"), &mut copy)?;
    }
    Ok(())
}

/// Returns the cubin's digest in a line of a lock.
fn digest(line: &str) -> Option<String> {
    line.split(' ').nth(2).map(str::to_owned)
}

/// Returns the last word of each line.
fn digests_of(listed: &str) -> BTreeSet<String> {
    listed.lines().filter_map(|line| line.split_whitespace().next_back()).map(str::to_owned).collect()
}

/// Returns the digests in a directory's lock files, of kernels that built-in models launch, as trainers embed, and of
/// architectures with this prefix.
pub fn locked(directory: &Path, arch: &str) -> Result<BTreeSet<String>> {
    let launched = Selection::of_models(Model::built_in(), Vec::new()).build_keys();
    let archs: Vec<Arch> = Arch::GPUS.into_iter().filter(|row| row.name().starts_with(arch)).collect();
    let mut digests = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "lock") {
            let lock: Lock = fs::read_to_string(&path)?.parse().with_context(|| path.display().to_string())?;
            digests.extend(lock::select(&lock, &launched, &archs).to_string().lines().skip(1).filter_map(digest));
        }
    }
    Ok(digests)
}

/// Returns the digests of the kernels that a trainer lists, of architectures with this prefix.
pub fn embedded(trainer: &Path, arch: &str) -> Result<BTreeSet<String>> {
    let listed = output(Command::new(trainer).arg("kernels"))?;
    let lines = listed.lines().filter(|line| line.starts_with("sm_") && line.starts_with(arch));
    Ok(lines.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect())
}

/// Checks that cuobjdump lists and extracts every cubin of the bundle and of the stripped trainer, and that nvdisasm
/// reads them.
fn tools(dir: &Path, bundle: &Path, installed: &Path) -> Result<()> {
    let [cuobjdump, nvdisasm] = setup::binary_tools()?;
    let trainer = dir.join("precast");
    fs::copy("target/release/precast", &trainer)?;
    step("strip the trainer", Command::new("strip").arg(&trainer))?;
    let bytes = fs::read(bundle)?;
    let modules =
        Bundle::read(&bytes, &KERNELS)?.manifest().modules.iter().filter(|module| module.code.is_some()).count();
    let extracted = dir.join("extracted");
    fs::create_dir(&extracted)?;
    let listed = output(Command::new(&cuobjdump).arg("--list-elf").arg(bundle))?;
    ensure!(listed.lines().filter(|line| line.contains("ELF file")).count() == modules, "cuobjdump lists others");
    let in_trainer = output(Command::new(&cuobjdump).arg("--list-elf").arg(&trainer))?;
    ensure!(in_trainer.contains(".cubin"), "cuobjdump lists no cubin of the stripped trainer");
    let bundle = bundle.canonicalize()?;
    step("cuobjdump extracts", Command::new(&cuobjdump).args(["-xelf", "all"]).arg(bundle).current_dir(&extracted))?;
    let cubins: Vec<PathBuf> = fs::read_dir(&extracted)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let read = cubins.par_iter().map(|cubin| {
        // Of where branches lead nothing is asked, and finding out takes a third longer.
        let text = output(Command::new(&nvdisasm).arg("--no-dataflow").arg(cubin))?;
        ensure!(text.contains("EXIT"), "nvdisasm finds no code in {}", cubin.display());
        Ok(Digest::of(&fs::read(cubin)?).to_string())
    });
    let digests: BTreeSet<String> = read.collect::<Result<_>>()?;
    ensure!(digests == locked(installed, "")?, "what cuobjdump extracts is not what is locked");
    println!("== {modules} cubins: listed, extracted, disassembled, and as locked");
    Ok(())
}

#[cfg(test)]
mod tests {
    use precast_models::SHARED_LOCK;

    use super::*;

    /// `CONTRIBUTING.md` locks a new kernel before a model launches it.
    #[test]
    fn a_kernel_that_no_model_launches_is_in_no_trainer() {
        let own = crate::run::root().join("aot/models/locks");
        let dir = tempfile::tempdir().unwrap();
        let text = fs::read_to_string(lock::path(&own, SHARED_LOCK)).unwrap();
        let line = text.lines().find(|line| line.starts_with("sm_121 ")).unwrap();
        let other = line.replacen("sm_121 ", "sm_121 a", 1).replace(&digest(line).unwrap(), &"0".repeat(64));
        fs::write(lock::path(dir.path(), SHARED_LOCK), text.replace(line, &format!("{other}\n{line}"))).unwrap();
        let [with, without] = [dir.path(), &own].map(|directory| locked(directory, "sm_121").unwrap());
        assert!(with == without && with.contains(&digest(line).unwrap()));
        assert!(locked(&own, "").unwrap().len() > 5 * with.len());
    }
}
