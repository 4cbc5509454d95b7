//! `cargo xtask release --reproduce DIR`: builds this checkout and compares it with a release.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use precast_fatbins::Digest;

use super::commit::Commit;
use super::dist;
use super::make::made;
use super::names::{Names, UNSIGNED};
use super::package::package;

/// Builds what the directory's sums list, under the same names, and compares.
pub fn reproduce(checkout: &Path, directory: &Path) -> Result<()> {
    let (sums, listed) = dist::sums_of(directory)?;
    let names = Names { version: package(checkout)?.version, is_signed: !sums.ends_with(UNSIGNED) };
    let materials = names.materials();
    ensure!(listed.contains_key(&materials), "{sums} lists another version's files: it has no {materials}");
    check_listed(directory, &sums, &listed)?;
    let commit = Commit::of(checkout)?;
    if let Some(first) = commit.changes.first() {
        println!("== not as committed: {first}");
    }
    let built = made(checkout, &names, &commit.id)?;
    compare(directory, &listed, &built)?;
    println!("== {}: {} files are equal, built of {}", directory.display(), built.len(), commit.id);
    Ok(())
}

/// Refuses what lies beside a release: its sums, which are signed, say nothing of it.
fn check_listed(directory: &Path, sums: &str, listed: &BTreeMap<String, Digest>) -> Result<()> {
    let mut names: Vec<String> = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    let own = [sums.to_owned(), format!("{sums}{}", dist::SIGNATURE)];
    match names.iter().find(|name| !own.contains(name) && !listed.contains_key(*name)) {
        Some(name) => bail!("{} is not of the release: {sums} does not list it", directory.join(name).display()),
        None => Ok(()),
    }
}

/// Names the first file that differs, and its first byte that does, if the file is there.
fn compare(directory: &Path, listed: &BTreeMap<String, Digest>, built: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (name, digest) in listed {
        let Some(bytes) = built.get(name) else { bail!("{name} is not of a release of this checkout") };
        let path = directory.join(name);
        let there = fs::read(&path).ok();
        if let Some(there) = &there {
            let found = Digest::of(there);
            ensure!(found == *digest, "{} has SHA-256 {found}, and its sums say {digest}", path.display());
        }
        let own = Digest::of(bytes);
        if own != *digest {
            let at = there.map_or_else(String::new, |there| first_difference(&there, bytes));
            bail!("{name} differs{at}: {digest} there, {own} built here");
        }
    }
    match built.keys().find(|name| !listed.contains_key(*name)) {
        Some(name) => bail!("{name} is not listed there"),
        None => Ok(()),
    }
}

fn first_difference(there: &[u8], built: &[u8]) -> String {
    let common = there.len().min(built.len());
    let at = there.iter().zip(built).position(|(there, built)| there != built).unwrap_or(common);
    format!(", first at byte {at} of {} there and {} here", there.len(), built.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_sums_list_is_refused_before_a_build() {
        let dir = tempfile::tempdir().unwrap();
        let listed = BTreeMap::from([("a".to_owned(), Digest::of(b"alpha"))]);
        for name in ["a", "SHA256SUMS", "SHA256SUMS.minisig"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let check = || check_listed(dir.path(), "SHA256SUMS", &listed).map_err(|error| error.to_string());
        check().unwrap();
        for name in ["precast-9.whl", "SHA256SUMS-unsigned.minisig", ".hidden"] {
            fs::write(dir.path().join(name), "").unwrap();
            assert!(
                check().unwrap_err().ends_with(&format!("/{name} is not of the release: SHA256SUMS does not list it"))
            );
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        fs::create_dir(dir.path().join("b")).unwrap();
        assert!(check().unwrap_err().contains("/b is not"));
    }

    #[test]
    fn the_first_file_and_byte_that_differ_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let files = BTreeMap::from([("a".to_owned(), b"alpha".to_vec()), ("b".to_owned(), b"beta".to_vec())]);
        for (name, bytes) in &files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let listed: BTreeMap<String, Digest> =
            files.iter().map(|(name, bytes)| (name.clone(), Digest::of(bytes))).collect();
        let compared = |built: &BTreeMap<String, Vec<u8>>| compare(dir.path(), &listed, built);
        compared(&files).unwrap();
        let with = |name: &str, bytes: &[u8]| {
            let mut built = files.clone();
            built.insert(name.to_owned(), bytes.to_vec());
            compared(&built).unwrap_err().to_string()
        };
        assert!(with("b", b"beat").starts_with("b differs, first at byte 2 of 4 there and 4 here: "));
        assert!(with("a", b"alphabet").starts_with("a differs, first at byte 5 of 5 there and 8 here: "));
        assert_eq!(with("c", b""), "c is not listed there");
        let mut fewer = files.clone();
        fewer.remove("a");
        assert_eq!(compared(&fewer).unwrap_err().to_string(), "a is not of a release of this checkout");
        // Sums alone tell as much, but the byte.
        fs::remove_file(dir.path().join("b")).unwrap();
        compared(&files).unwrap();
        assert!(with("b", b"beat").starts_with("b differs: "));
        fs::write(dir.path().join("a"), "alphA").unwrap();
        assert!(compared(&files).unwrap_err().to_string().contains("and its sums say"));
    }
}
