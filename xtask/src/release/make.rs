//! Makes the files of a release, in memory.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use rayon::prelude::*;

use super::build::Programs;
use super::files::{Entry, read};
use super::hosts::{HOSTS, Host};
use super::names::Names;
use super::package::{About, about};
use super::tools::Tools;
use super::{archive, build, configuration, crates, environment, kernels, materials, pages, provenance, wheel};
use crate::run::{cargo, step};

/// Builds all files of a release but its sums.
pub fn made(checkout: &Path, names: &Names, commit: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    environment::check()?;
    configuration::check(checkout, &environment::cargo_home()?)?;
    let mut fetch = cargo(&["fetch", "--locked"]);
    step("the crates", fetch.current_dir(checkout).args(HOSTS.iter().flat_map(|host| ["--target", host.triple])))?;
    let tools = Tools::new(checkout)?;
    let crates = crates::linked(checkout)?;
    let built = HOSTS.map(|host| build::build(host, checkout, &tools, commit));
    let programs: Vec<Programs> = built.into_iter().collect::<Result<_>>()?;
    // Those of this machine can run.
    let own = build::built(checkout, Host::own().context("no release has programs for this machine")?);
    let (kernels, bundles) = (kernels::published(checkout, &own)?, kernels::bundles(&own)?);
    let materials = materials::materials(&names.version, &programs, &crates, &tools.ran);
    let materials = pretty(&materials);
    let about = about(checkout, crates::texts(&crates)?, &tools.notices)?;
    let version = names.wheel_version();
    let mut shared = pages::pages(&own.join("precast"))?;
    shared.extend(about.licenses.iter().map(|(name, text)| Entry::text(name, text.clone())));
    for name in ["README.md", "CHANGELOG.md"] {
        shared.push(Entry::text(name, read(checkout, name)?));
    }
    let packed = programs.par_iter().map(|programs| packed(names, &about, &version, programs, &shared, &materials));
    let packed: Vec<Vec<(String, Vec<u8>)>> = packed.collect::<Result<_>>()?;
    let mut files: BTreeMap<String, Vec<u8>> = packed.into_iter().flatten().collect();
    files.insert(names.kernels(), kernels);
    files.insert(names.materials(), materials);
    let provenance = provenance::statement(&files, &programs, &bundles, commit, names.tag().as_deref(), &tools.ran);
    files.insert(names.provenance(), pretty(&provenance));
    Ok(files)
}

/// A machine's wheel, archive and symbols, as (name, bytes).
fn packed(
    names: &Names,
    about: &About,
    version: &str,
    programs: &Programs,
    shared: &[Entry],
    materials: &[u8],
) -> Result<Vec<(String, Vec<u8>)>> {
    let Programs { host, files } = programs;
    let mut entries: Vec<Entry> = shared.to_vec();
    entries.extend(files.iter().map(|file| Entry::program(format!("bin/{}", file.name), file.bytes.clone())));
    let symbols: Vec<Entry> =
        files.iter().map(|file| Entry::text(format!("{}.debug", file.name), file.symbols.clone())).collect();
    let folders = [(names.programs(*host), entries), (names.symbols(*host), symbols)];
    let archives =
        folders.par_iter().map(|(folder, entries)| Ok((format!("{folder}.tar.xz"), archive::tar_xz(folder, entries)?)));
    let mut packed: Vec<(String, Vec<u8>)> = archives.collect::<Result<_>>()?;
    packed.push(wheel::wheel(about, version, programs, materials)?);
    Ok(packed)
}

fn pretty(value: &serde_json::Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
