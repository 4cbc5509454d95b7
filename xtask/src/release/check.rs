//! `cargo xtask release --check TAG`: may this checkout, and what is in `dist`, be released under this tag?

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use precast_aot::lock;
use precast_fatbins::{Digest, TrustedKey, signature_path};
use precast_kernels::Arch;
use precast_models::{LOCK, SHARED_LOCK, Selection};
use precast_system::{count, files};
use serde_json::Value;

use super::commit::Commit;
use super::dist;
use super::files::read;
use super::names::Names;
use super::package::package;
use super::sign;
use crate::run::{listed, output};

/// Checks sources; and the directory of a release, if it is there.
pub fn check(checkout: &Path, tag: &str, out: &Path) -> Result<()> {
    let names = Names { version: package(checkout)?.version, is_signed: true };
    let manifest = String::from_utf8(read(checkout, "Cargo.toml")?)?;
    versions(tag, &names.version, &manifest)?;
    changelog(&names.version, &String::from_utf8(read(checkout, "CHANGELOG.md")?)?)?;
    rows(&manifest)?;
    locks(&checkout.join("aot/models/locks"))?;
    let commit = Commit::of(checkout)?;
    if let [first, ..] = &commit.changes[..] {
        bail!("{} files differ from the commit, first {first}", commit.changes.len());
    }
    let tags = output(Command::new("git").args(["tag", "--list", "v*"]).current_dir(checkout))?;
    raised(&names.version, &tags)?;
    ensure!(
        commit.tags.iter().any(|own| own == tag) || !tags.lines().any(|other| other == tag),
        "{tag} is another commit than {}",
        commit.id
    );
    if out.exists() {
        made(checkout, &names, &commit.id, out)?;
        println!("== {tag}: the checkout and {} are a release of {}", out.display(), commit.id);
    } else {
        println!("== {tag}: the checkout, {}, can be released; {} is not there yet", commit.id, out.display());
    }
    Ok(())
}

/// Checks that the tag and every package of the workspace have the version.
fn versions(tag: &str, version: &str, manifest: &str) -> Result<()> {
    let at = |line: usize| format!("Cargo.toml:{}", line + 1);
    let own = manifest.lines().position(|line| line == format!("version = \"{version}\"")).unwrap_or_default();
    ensure!(tag == format!("v{version}"), "the tag is {tag}, and {} says {version}", at(own));
    for (index, line) in manifest.lines().enumerate().filter(|(_, line)| line.contains("{ path = ")) {
        let other = line.contains("version = ") && !line.contains(&format!("version = \"{version}\""));
        ensure!(!other, "{} has another version than {version}: {line}", at(index));
    }
    Ok(())
}

/// Checks that the first section of the changelog is this version's, with its date: `## 1.2.3, 2026-11-26`.
fn changelog(version: &str, text: &str) -> Result<()> {
    let top = text.lines().enumerate().find(|(_, line)| line.starts_with("## "));
    let (index, line) = top.context("CHANGELOG.md has no section")?;
    let mut words = line[3..].split([' ', ',', '(', ')']).filter(|word| !word.is_empty());
    let is_date = |word: &str| {
        let parts: Vec<usize> =
            word.split('-').map(|part| if part.parse::<u16>().is_ok() { part.len() } else { 0 }).collect();
        parts == [4, 2, 2]
    };
    ensure!(
        words.next() == Some(version) && words.any(is_date),
        "CHANGELOG.md:{} is `{line}`, and the release's section begins `## {version}, ` with its date",
        index + 1
    );
    Ok(())
}

/// Checks that the feature of a release's trainer has every row.
fn rows(manifest: &str) -> Result<()> {
    let all = manifest.lines().enumerate().find(|(_, line)| line.starts_with("all = ["));
    let (index, line) = all.context("Cargo.toml has no feature `all`")?;
    let lacks = Arch::GPUS.into_iter().filter_map(Arch::feature).find(|row| !line.contains(&format!("\"{row}\"")));
    ensure!(lacks.is_none(), "Cargo.toml:{} lacks {}", index + 1, lacks.unwrap_or_default());
    Ok(())
}

/// Checks that every kernel is locked on every row.
fn locks(directory: &Path) -> Result<()> {
    let path = lock::path(directory, SHARED_LOCK);
    let lock = lock::read(directory, SHARED_LOCK)?.with_context(|| format!("{} is not there", path.display()))?;
    let keys = Selection::everything().build_keys();
    for row in Arch::GPUS {
        let lacks = keys.on(row).len() - lock::select(&lock, &keys, &[row]).len();
        ensure!(lacks == 0, "{} lacks {} of {row}: {LOCK} writes it", path.display(), count(lacks, "kernel"));
    }
    Ok(())
}

/// Checks that no release has this version or a newer one.
fn raised(version: &str, tags: &str) -> Result<()> {
    let numbers = |text: &str| text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>();
    let own = numbers(version).with_context(|| format!("{version} is no version"))?;
    let newer = tags.lines().find(|tag| {
        let released = tag.strip_prefix('v').filter(|released| *released != version);
        released.and_then(numbers).is_some_and(|released| released >= own)
    });
    ensure!(
        newer.is_none(),
        "the version is {version}, and {} is there: raise it in Cargo.toml",
        newer.unwrap_or_default()
    );
    Ok(())
}

/// Checks that a directory is a whole, signed release of this commit, and that the pages name its kernels.
fn made(checkout: &Path, names: &Names, commit: &str, out: &Path) -> Result<()> {
    let (sums, summed) = dist::sums_of(out)?;
    let shown = out.display();
    ensure!(sums == names.sums(), "{shown} is no release: nobody signed it, so it has {sums} and no {}", names.sums());
    let keys = std::env::var("PRECAST_TRUSTED_KEY").unwrap_or_default();
    let keys: Vec<TrustedKey> = keys.split_whitespace().map(TrustedKey::find).collect::<Result<_, _>>()?;
    signed(&out.join(&sums), &sign::comment(&names.version, commit), &keys)?;
    complete(&sums, &summed, names)?;
    dist::check_replaceable(out, names)?;
    for (name, digest) in &summed {
        let path = out.join(name);
        ensure!(files::digest(&path).is_ok_and(|found| found == *digest), "{} is not as {sums} says", path.display());
    }
    let path = out.join(names.provenance());
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    let provenance: Value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let definition = &provenance["predicate"]["buildDefinition"];
    let of = definition["externalParameters"]["commit"].as_str().unwrap_or_default();
    ensure!(of == commit, "{} is of commit {of}, and the checkout is {commit}", path.display());
    let bundles = definition["internalParameters"]["bundles"].as_object();
    let bundles: Vec<&str> = bundles.into_iter().flatten().filter_map(|(_, digest)| digest.as_str()).collect();
    for page in listed(&["docs/*.md", "README.md", "BENCHMARKS.md"])? {
        let text = fs::read_to_string(checkout.join(&page)).with_context(|| page.clone())?;
        digests(&page, &text, &bundles)?;
    }
    Ok(())
}

/// Checks that the signature of sums is of this version and commit; and is one of the trusted keys, if there are any.
fn signed(sums: &Path, comment: &str, keys: &[TrustedKey]) -> Result<()> {
    let path = signature_path(sums);
    let text = fs::read_to_string(&path).with_context(|| format!("no release: {}", path.display()))?;
    let line = format!("trusted comment: {comment}");
    ensure!(text.lines().nth(2) == Some(&*line), "{} does not say `{line}`", path.display());
    if !keys.is_empty() {
        TrustedKey::check(keys, &fs::read(sums)?, Some(&text), &path)?;
    }
    Ok(())
}

/// Checks that sums list every file of a release, and no other.
fn complete(sums: &str, listed: &BTreeMap<String, Digest>, names: &Names) -> Result<()> {
    let all = names.all();
    let lacks = all.iter().find(|name| !listed.contains_key(*name));
    ensure!(lacks.is_none(), "{sums} lacks {}", lacks.map_or("", String::as_str));
    let other = listed.keys().find(|name| !all.contains(*name));
    ensure!(other.is_none(), "{sums} lists {}, which is not of a release", other.map_or("", String::as_str));
    Ok(())
}

/// Checks the digests of bundles that a page shows as the trainer prints them: `bundle   DIGEST, 31 kernels`.
fn digests(name: &str, text: &str, bundles: &[&str]) -> Result<()> {
    for (index, line) in text.lines().enumerate() {
        let digest = line.strip_prefix("bundle ").and_then(|rest| rest.split([' ', ',']).find(|word| !word.is_empty()));
        let is_digest = |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(digest) = digest.filter(is_digest) {
            ensure!(
                bundles.contains(&digest),
                "{name}:{} shows bundle {digest}, which no row of this release has",
                index + 1
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
        format!("{:#}", result.unwrap_err())
    }

    const MANIFEST: &str = "\
[workspace.package]
version = \"1.2.3\"
[workspace.dependencies]
a = { path = \"a\", version = \"1.2.3\" }
b = { path = \"b\" }
[features]
all = [\"sm_80\", \"sm_86\", \"sm_89\", \"sm_90\", \"sm_100\", \"sm_120\", \"sm_121\"]
";

    #[test]
    fn a_tag_of_another_version_is_refused_with_the_line() {
        versions("v1.2.3", "1.2.3", MANIFEST).unwrap();
        assert_eq!(refused(versions("v1.2.4", "1.2.3", MANIFEST)), "the tag is v1.2.4, and Cargo.toml:2 says 1.2.3");
        assert!(refused(versions("1.2.3", "1.2.3", MANIFEST)).contains("the tag is 1.2.3"));
        let other = MANIFEST.replace("a\", version = \"1.2.3", "a\", version = \"1.2.2");
        assert!(refused(versions("v1.2.3", "1.2.3", &other)).starts_with("Cargo.toml:4 has another version"));
        rows(MANIFEST).unwrap();
        assert_eq!(refused(rows(&MANIFEST.replace("\"sm_89\", ", ""))), "Cargo.toml:7 lacks sm_89");
        // That of this checkout.
        let own = fs::read_to_string(crate::run::root().join("Cargo.toml")).unwrap();
        rows(&own).unwrap();
        let version = package(&crate::run::root()).unwrap().version;
        versions(&format!("v{version}"), &version, &own).unwrap();
    }

    #[test]
    fn a_changelog_begins_with_the_released_version_and_its_date() {
        let of = |heading: &str| {
            changelog("1.2.3", &format!("# Changelog\n\n{heading}\n\n- A change.\n\n## 1.2.2, 2026-01-02\n"))
        };
        for heading in ["## 1.2.3, 2026-11-26", "## 1.2.3 (2026-11-26)", "## 1.2.3 - 2026-11-26"] {
            of(heading).unwrap();
        }
        for heading in ["## Unreleased", "## 1.2.3", "## 1.2.30, 2026-11-26", "## 1.2.3, soon", "## 1.2.3, 26-11-2026"]
        {
            let message = refused(of(heading));
            assert!(message.starts_with(&format!("CHANGELOG.md:3 is `{heading}`")), "{message}");
        }
        assert!(refused(changelog("1.2.3", "# Changelog\n")).contains("no section"));
    }

    #[test]
    fn a_version_that_is_not_raised_is_refused() {
        for tags in ["", "v1.2.3", "v1.2.2\nv0.9.9\nv1.1.30", "nightly\nv1.3.0-rc1"] {
            raised("1.2.3", tags).unwrap();
        }
        assert!(refused(raised("1.2.3", "v1.2.2\nv1.10.0")).contains("v1.10.0 is there"));
    }

    #[test]
    fn a_lock_without_a_row_is_refused() {
        let own = crate::run::root().join("aot/models/locks");
        locks(&own).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let changed = dir.path().join("built-in.lock");
        let text = fs::read_to_string(own.join("built-in.lock")).unwrap();
        // One model launches it.
        let without: Vec<&str> =
            text.lines().filter(|line| !line.starts_with("sm_100 embedding.bwd{h=1536,x=bf16}[")).collect();
        assert_eq!(without.len() + 1, text.lines().count());
        fs::write(&changed, without.join("\n") + "\n").unwrap();
        let message = refused(locks(dir.path()));
        assert!(message.contains("built-in.lock lacks 1 kernel of sm_100"), "{message}");
        fs::remove_file(&changed).unwrap();
        assert!(refused(locks(dir.path())).contains("built-in.lock is not there"));
    }

    #[test]
    fn a_signature_of_another_version_commit_or_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let sums = dir.path().join("SHA256SUMS");
        fs::write(&sums, "sums").unwrap();
        let [own, other] = [(); 2].map(|()| minisign::KeyPair::generate_unencrypted_keypair().unwrap());
        let trusted = |pair: &minisign::KeyPair| TrustedKey::find(&pair.pk.to_base64()).unwrap();
        let comment = sign::comment("1.2.3", "abc");
        assert!(refused(signed(&sums, &comment, &[])).contains("SHA256SUMS.minisig"));
        let signature =
            minisign::sign(Some(&own.pk), &own.sk, &b"sums"[..], Some(&comment), None).unwrap().into_string();
        let path = signature_path(&sums);
        fs::write(&path, &signature).unwrap();
        for keys in [vec![], vec![trusted(&own)], vec![trusted(&other), trusted(&own)]] {
            signed(&sums, &comment, &keys).unwrap();
        }
        assert!(refused(signed(&sums, &comment, &[trusted(&other)])).contains("other than the trusted"));
        for (version, commit) in [("1.2.4", "abc"), ("1.2.3", "abd"), ("1.2.3", "ab")] {
            let comment = sign::comment(version, commit);
            let message = refused(signed(&sums, &comment, &[]));
            assert!(message.ends_with(&format!("does not say `trusted comment: {comment}`")), "{message}");
        }
        // The comment alone proves nothing where a key is trusted.
        let says = |from: &str, to: &str| fs::write(&path, signature.replace(from, to)).unwrap();
        says("1.2.3", "1.2.4");
        let changed = sign::comment("1.2.4", "abc");
        signed(&sums, &changed, &[]).unwrap();
        refused(signed(&sums, &changed, &[trusted(&own)]));
        says("", "");
        fs::write(&sums, "other sums").unwrap();
        assert!(refused(signed(&sums, &comment, &[trusted(&own)])).contains("altered"));
    }

    #[test]
    fn sums_list_every_file_of_a_release_and_no_other() {
        let names = Names { version: "1.2.3".to_owned(), is_signed: true };
        let all: BTreeMap<String, Digest> = names.all().into_iter().map(|name| (name, Digest::of(b""))).collect();
        assert_eq!(all.len(), 9);
        complete("SHA256SUMS", &all, &names).unwrap();
        for name in all.keys() {
            let mut fewer = all.clone();
            fewer.remove(name);
            assert_eq!(refused(complete("SHA256SUMS", &fewer, &names)), format!("SHA256SUMS lacks {name}"));
        }
        let mut more = all;
        more.insert("notes".to_owned(), Digest::of(b""));
        let message = refused(complete("SHA256SUMS", &more, &names));
        assert_eq!(message, "SHA256SUMS lists notes, which is not of a release");
    }

    #[test]
    fn pages_show_digests_of_this_release_alone() {
        let [own, other] = ["a".repeat(64), "b".repeat(64)];
        let page = |digest: &str| format!("text\nbundle   {digest}, 31 kernels\nbundle digests are long\n");
        digests("README.md", &page(&own), &[&own]).unwrap();
        let message = refused(digests("README.md", &page(&other), &[&own]));
        assert!(message.starts_with("README.md:2 shows bundle bbbb"), "{message}");
    }
}
