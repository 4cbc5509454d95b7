//! `cargo xtask release`: everything that a release holds, from a clean checkout and pinned tools. The same sources
//! give the same bytes.

mod archive;
mod build;
mod check;
mod commit;
mod configuration;
mod crates;
mod dist;
mod elf;
mod environment;
mod files;
mod hosts;
mod kernels;
mod make;
mod materials;
mod names;
mod notices;
mod package;
mod pages;
mod provenance;
mod readme;
mod reproduce;
mod sign;
mod sums;
mod tools;
mod wheel;
mod zig;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::run::root;
use commit::Commit;
use make::made;
use names::Names;
use package::package;
use sign::Key;

/// Says which of its three tasks a call asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    Release { out: &'a Path, key: Option<&'a Path> },
    Check { tag: &'a str, out: &'a Path },
    Reproduce(&'a Path),
}

/// Makes a release, checks that one may be made, or makes it again.
pub fn release(arguments: &[&str]) -> Result<()> {
    let checkout = root().canonicalize().context("the checkout")?;
    match asked(arguments)? {
        Asked::Release { out, key } => new(&checkout, out, key),
        Asked::Check { tag, out } => check::check(&checkout, tag, out),
        Asked::Reproduce(directory) => reproduce::reproduce(&checkout, directory),
    }
}

fn asked<'a>(arguments: &[&'a str]) -> Result<Asked<'a>> {
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for pair in arguments.chunks(2) {
        let [name @ ("--out" | "--key" | "--check" | "--reproduce"), value] = *pair else {
            bail!("release takes --out DIR, --key FILE, --check TAG and --reproduce DIR, not {}", pair.join(" "));
        };
        ensure!(!value.is_empty(), "{name} is empty");
        ensure!(given.insert(name, value).is_none(), "{name} is given twice");
    }
    let [out, key, tag, directory] = ["--out", "--key", "--check", "--reproduce"].map(|name| given.get(name).copied());
    let path = |text: &'a str| Path::new(text);
    let to = out.map_or(path("dist"), path);
    match (key, tag, directory) {
        (_, None, None) => Ok(Asked::Release { out: to, key: key.map(path) }),
        (None, Some(tag), None) => Ok(Asked::Check { tag, out: to }),
        (None, None, Some(directory)) if out.is_none() => Ok(Asked::Reproduce(path(directory))),
        _ => bail!("--check TAG takes --out alone beside it, and --reproduce DIR nothing"),
    }
}

/// Makes a release and writes it.
fn new(checkout: &Path, out: &Path, key: Option<&Path>) -> Result<()> {
    let key = key.map(Key::open).transpose()?;
    let names = Names { version: package(checkout)?.version, is_signed: key.is_some() };
    let commit = Commit::of(checkout)?;
    if let Some(tag) = names.tag() {
        ensure!(commit.changes.is_empty(), "a release is signed as committed, and there is {}", commit.changes[0]);
        ensure!(commit.tags.contains(&tag), "a signed release is a tag's, and {} is not {tag}", commit.id);
    }
    dist::check_replaceable(out, &names)?;
    let mut files = made(checkout, &names, &commit.id)?;
    let sums = sums::text(&files);
    if let Some(key) = key {
        let signature = key.sign(sums.as_bytes(), &sign::comment(&names.version, &commit.id))?;
        files.insert(format!("{}{}", names.sums(), dist::SIGNATURE), signature.into_bytes());
    }
    files.insert(names.sums(), sums.clone().into_bytes());
    // Somebody may have put something there in the meantime.
    dist::check_replaceable(out, &names)?;
    dist::put(out, &files)?;
    print!("\n{sums}");
    println!("== {}: {} files of {}, {}", out.display(), files.len(), commit.id, names.sums());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_one_thing() {
        let release = |out: &'static str, key| Asked::Release { out: Path::new(out), key };
        assert_eq!(asked(&[]).unwrap(), release("dist", None));
        assert_eq!(asked(&["--key", "k", "--out", "d"]).unwrap(), release("d", Some(Path::new("k"))));
        assert_eq!(asked(&["--check", "v1"]).unwrap(), Asked::Check { tag: "v1", out: Path::new("dist") });
        assert_eq!(asked(&["--reproduce", "d"]).unwrap(), Asked::Reproduce(Path::new("d")));
        for wrong in [
            &["--key", ""][..],
            &["--key"],
            &["dist"],
            &["--out", "a", "--out", "b"],
            &["--check", "v1", "--key", "k"],
            &["--check", "v1", "--reproduce", "d"],
            &["--reproduce", "d", "--out", "e"],
        ] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }
}
