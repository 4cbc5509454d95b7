//! Makes a release, checks one, or makes it again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::commit::Commit;
use super::make::made;
use super::names::Names;
use super::package::package;
use super::sign::{self, Key};
use super::{check, dist, reproduce, sums};
use crate::run::root;

/// Build what a release holds, for both hosts and glibc 2.28, into DIR: wheels, archives, kernels, bill of materials,
/// provenance, sums; signed with FILE, else named unsigned
#[derive(Args)]
pub struct Arguments {
    #[arg(long, value_name = "DIR", default_value = "dist")]
    out: PathBuf,
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Check that versions, changelog, locks and pages are this tag's, and so is DIR, if it is there: all of its files,
    /// and its signature by a key of PRECAST_TRUSTED_KEY, if that is set
    #[arg(long, value_name = "TAG", conflicts_with = "key", value_parser = NonEmptyStringValueParser::new())]
    check: Option<String>,
    /// Build this checkout and compare with DIR's SHA256SUMS: equal, or the first file and byte that differ
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "key", "check"])]
    reproduce: Option<PathBuf>,
}

/// Makes a release, checks that one may be made, or makes it again.
pub fn release(Arguments { out, key, check, reproduce }: &Arguments) -> Result<()> {
    let checkout = root().canonicalize().context("the checkout")?;
    match (check, reproduce) {
        (Some(tag), _) => check::check(&checkout, tag, out),
        (_, Some(directory)) => reproduce::reproduce(&checkout, directory),
        _ => new(&checkout, out, key.as_deref()),
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
    use clap::Parser;

    use super::Arguments;

    #[derive(Parser)]
    struct Release {
        #[command(flatten)]
        _arguments: Arguments,
    }

    #[test]
    fn what_is_asked_for_is_one_thing() {
        for (line, is_one) in [
            ("", true),
            ("--key k --out d", true),
            ("--check v1 --out d", true),
            ("--reproduce d", true),
            ("--key=", false),
            ("--check=", false),
            ("dist", false),
            ("--out a --out b", false),
            ("--check v1 --key k", false),
            ("--check v1 --reproduce d", false),
            ("--reproduce d --out e", false),
        ] {
            let parsed = Release::try_parse_from(["release"].into_iter().chain(line.split_whitespace()));
            assert_eq!(parsed.is_ok(), is_one, "{line}");
        }
    }
}
