//! The crates that a release's programs are linked of, and their licenses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use super::environment::clean;
use super::hosts::{HOSTS, PROGRAMS};
use crate::run::{cargo, output};

/// A crate in a program of any machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    pub name: String,
    pub version: String,
    /// SPDX expression.
    pub license: String,
    /// SHA-256 of its file on crates.io, by `Cargo.lock`; none of this checkout's own.
    pub checksum: Option<String>,
    /// Machines whose programs have it.
    pub machines: BTreeSet<&'static str>,
    /// Its directory.
    pub sources: PathBuf,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

/// Lists them by name and version, with the licenses that `deny.toml` allows, and no other.
pub fn linked(checkout: &Path) -> Result<Vec<Crate>> {
    let lock: Lock = toml::from_str(&fs::read_to_string(checkout.join("Cargo.lock"))?)?;
    // Of other systems nothing is fetched.
    let mut metadata = asked(checkout, &["metadata", "--format-version", "1", "--frozen"]);
    metadata.args(HOSTS.iter().flat_map(|host| ["--filter-platform", host.triple]));
    let metadata = output(&mut metadata)?;
    let metadata: Metadata = serde_json::from_str(&metadata)?;
    let mut found: BTreeMap<(String, String), Crate> = BTreeMap::new();
    for host in HOSTS {
        let mut tree = asked(checkout, &["tree", "--frozen", "--features", "precast/all", "--prefix", "none"]);
        tree.args(PROGRAMS.iter().flat_map(|(_, package)| ["--package", package]));
        // What runs in the build is not linked: build scripts, procedural macros.
        tree.args(["--target", host.triple, "--edges", "normal,no-proc-macro", "--no-dedupe", "--format", "{p}|{l}"]);
        for line in output(&mut tree)?.lines().filter(|line| !line.is_empty()) {
            let (name, version, license) = parsed(line).with_context(|| format!("`cargo tree` prints {line}"))?;
            let key = (name.to_owned(), version.to_owned());
            if let Some(known) = found.get_mut(&key) {
                known.machines.insert(host.machine);
                continue;
            }
            let locked = lock.package.iter().find(|package| package.name == name && package.version == version);
            let locked = locked.with_context(|| format!("Cargo.lock has no {name} {version}"))?;
            let package = metadata.packages.iter().find(|package| package.name == name && package.version == version);
            let package = package.with_context(|| format!("cargo knows no {name} {version}"))?;
            let sources = package.manifest_path.parent().context("a manifest lies in a directory")?.to_owned();
            let (license, machines) = (license.replace('/', " OR "), BTreeSet::from([host.machine]));
            let checksum = locked.checksum.clone();
            let [name, version] = [name, version].map(str::to_owned);
            found.insert(key, Crate { name, version, license, checksum, machines, sources });
        }
    }
    let crates: Vec<Crate> = found.into_values().collect();
    check(&crates, &allowed(&fs::read_to_string(checkout.join("deny.toml"))?)?)?;
    Ok(crates)
}

fn asked(checkout: &Path, arguments: &[&str]) -> std::process::Command {
    let mut command = clean(cargo(&[]).get_program());
    command.args(arguments).current_dir(checkout);
    command
}

/// Name, version and license of `name v1.2.3 (/path)|MIT`.
fn parsed(line: &str) -> Option<(&str, &str, &str)> {
    let (package, license) = line.rsplit_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((name, version, license)).filter(|_| !license.is_empty())
}

fn allowed(deny: &str) -> Result<Vec<String>> {
    let table: toml::Table = deny.parse()?;
    let list = table.get("licenses").and_then(|licenses| licenses.get("allow")).and_then(toml::Value::as_array);
    let list = list.context("deny.toml allows no licenses")?;
    Ok(list.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

fn check(crates: &[Crate], allowed: &[String]) -> Result<()> {
    let refused = crates.iter().filter(|one| !is_allowed(&one.license, allowed));
    let refused: Vec<String> = refused.map(|one| format!("{} {}: {}", one.name, one.version, one.license)).collect();
    ensure!(refused.is_empty(), "deny.toml does not allow the licenses of {}", refused.join(", "));
    Ok(())
}

/// True if licenses that are allowed meet an expression of SPDX.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let parsed = Expression::parse_mode(expression, ParseMode::LAX);
    parsed.is_ok_and(|parsed| parsed.evaluate(|license| allowed.contains(&license.to_string())))
}

/// Beginnings of the names of files that say what a license asks to be passed on.
const TEXTS: [&str; 5] = ["copying", "copyright", "licen", "notice", "unlicense"];

/// Crates that are published without a text, and the crate of the same repository that has it.
const TEXT_OF: [(&str, &str); 1] = [("pulp-wasm-simd-flag", "pulp")];

/// Returns the licenses of crates that are not this checkout's, each text once, under the names of its crates.
pub fn texts(crates: &[Crate]) -> Result<String> {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in crates.iter().filter(|one| one.checksum.is_some()) {
        let holder = match TEXT_OF.iter().find(|(name, _)| *name == one.name) {
            Some((_, holder)) => crates
                .iter()
                .find(|other| other.name == *holder)
                .with_context(|| format!("{holder}, with the license of {}, is not linked", one.name))?,
            None => one,
        };
        let (found, name) = (texts_in(&holder.sources)?, format!("{} {}", one.name, one.version));
        ensure!(!found.is_empty(), "{name} has no text of its license: name a crate that has it in crates.rs");
        for text in found {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut parts: Vec<(BTreeSet<String>, String)> = texts.into_iter().map(|(text, names)| (names, text)).collect();
    parts.sort();
    let part = |(names, text): (BTreeSet<String>, String)| {
        format!("{}\n\n{text}\n", names.into_iter().collect::<Vec<_>>().join(", "))
    };
    let rule = format!("\n{}\n", "-".repeat(79));
    Ok(format!(
        "Licenses of the crates that the programs are linked of\n{rule}{}",
        parts.into_iter().map(part).collect::<Vec<_>>().join(&rule)
    ))
}

fn texts_in(sources: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(sources).with_context(|| sources.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && TEXTS.iter().any(|text| name.starts_with(text)) {
            texts.push(String::from_utf8_lossy(&fs::read(&path)?).replace("\r\n", "\n").trim().to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_license_is_allowed_if_what_deny_toml_lists_meets_it() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("Unlicense OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("GPL-3.0 OR MIT AND Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("(MIT", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }

    #[test]
    fn every_linked_crate_of_the_lock_is_listed_and_no_other() {
        let crates = linked(&crate::run::root()).unwrap();
        let find = |name: &str| crates.iter().find(|one| one.name == name);
        // Linked into either program, on either machine.
        for (name, is_ours) in [("precast", true), ("precast-aot", true), ("zstd-sys", false), ("bindgen", false)] {
            let found = find(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(found.checksum.is_none(), is_ours, "{name}");
            assert_eq!(found.machines.len(), HOSTS.len(), "{name}");
        }
        // They run in the build, in tests, or on other systems.
        for name in ["serde_derive", "cc", "proptest", "insta", "windows-sys", "precast-simt", "xtask"] {
            assert_eq!(find(name), None);
        }
        let texts = texts(&crates).unwrap();
        assert!(texts.contains("\nzstd-sys ") || texts.contains(", zstd-sys "), "{texts}");
        assert!(texts.contains("Permission is hereby granted"), "{texts}");
    }

    #[test]
    fn a_linked_crate_without_a_license_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| Crate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: "MIT".to_owned(),
            checksum: Some(String::new()),
            machines: BTreeSet::new(),
            sources: dir.path().join(name),
        };
        let [a, pulp, flag] = ["a", "pulp", "pulp-wasm-simd-flag"].map(|name| {
            fs::create_dir(dir.path().join(name)).unwrap();
            of(name)
        });
        let refused = |crates: &[Crate]| texts(crates).unwrap_err().to_string();
        assert!(refused(std::slice::from_ref(&a)).starts_with("a 1.0.0 has no text of its license"));
        fs::write(a.sources.join("LICENSE"), "MIT\r\n").unwrap();
        assert!(texts(std::slice::from_ref(&a)).unwrap().ends_with("\na 1.0.0\n\nMIT\n"));
        assert!(refused(&[a, flag.clone()]).contains("pulp, with the license of pulp-wasm-simd-flag, is not linked"));
        assert!(refused(&[pulp.clone(), flag.clone()]).starts_with("pulp 1.0.0 has no text"));
        fs::write(pulp.sources.join("LICENSE"), "MIT").unwrap();
        assert!(texts(&[pulp, flag]).unwrap().contains("\npulp 1.0.0, pulp-wasm-simd-flag 1.0.0\n\nMIT\n"));
    }
}
