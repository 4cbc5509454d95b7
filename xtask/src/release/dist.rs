//! The directory of a release: whole, or as it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use precast_fatbins::Digest;
use precast_system::files;

use super::names::Names;
use super::sums;

/// Ends the name of a signature.
pub const SIGNATURE: &str = ".minisig";

/// Reads the sums of a directory, and what they are called. A directory has those of one release.
pub fn sums_of(directory: &Path) -> Result<(String, BTreeMap<String, Digest>)> {
    let names = [true, false].map(|is_signed| Names { version: String::new(), is_signed }.sums());
    let there: Vec<&String> = names.iter().filter(|name| directory.join(name).is_file()).collect();
    let shown = directory.display();
    match there[..] {
        [name] => {
            let path = directory.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok((name.clone(), sums::parse(&text).with_context(|| path.display().to_string())?))
        }
        [] => bail!("{shown} holds no release: it has no {}", names.join(" and no ")),
        _ => bail!("{shown} holds two releases: {}", names.join(" and ")),
    }
}

/// Refuses a directory that holds anything but a release of these names, as it was written.
pub fn check_replaceable(directory: &Path, names: &Names) -> Result<()> {
    let shown = directory.display();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| shown.to_string())?,
    };
    let mut found: Vec<String> =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
    found.sort();
    if found.is_empty() {
        return Ok(());
    }
    let keeps = |what: String| {
        format!("{what}: {shown} is left as it is. Name another directory by --out, or move this one away")
    };
    let (sums, mut listed) = sums_of(directory).map_err(|error| anyhow::anyhow!(keeps(error.to_string())))?;
    ensure!(sums == names.sums(), keeps(format!("{sums} is there, and this release writes {}", names.sums())));
    let materials = names.materials();
    ensure!(listed.contains_key(&materials), keeps(format!("{sums} is another version's: it has no {materials}")));
    for name in found.iter().filter(|name| **name != sums && **name != format!("{sums}{SIGNATURE}")) {
        let digest = listed.remove(name).with_context(|| keeps(format!("{name} is not of a release")))?;
        let path = directory.join(name);
        let is_file = fs::symlink_metadata(&path).is_ok_and(|file| file.is_file());
        ensure!(is_file && files::digest(&path)? == digest, keeps(format!("{name} is not as {sums} says")));
    }
    Ok(())
}

/// Puts files in place of the directory, together.
pub fn put(directory: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    let fill = |aside: &Path| files.iter().try_for_each(|(name, bytes)| fs::write(aside.join(name), bytes));
    files::write_directory(directory, fill).with_context(|| directory.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(version: &str, is_signed: bool) -> Names {
        Names { version: version.to_owned(), is_signed }
    }

    fn release(names: &Names, more: &str) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::from([
            (names.materials(), b"{}".to_vec()),
            (names.kernels(), format!("kernels {more}").into_bytes()),
        ]);
        files.insert(names.sums(), sums::text(&files).into_bytes());
        files
    }

    #[test]
    fn a_directory_is_replaced_only_as_a_release_of_this_version_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let dist = dir.path().join("dist");
        let own = names("1.0.0", false);
        let check = |names: &Names| check_replaceable(&dist, names).map_err(|error| format!("{error:#}"));
        let refused = |names: &Names| check(names).unwrap_err();
        check(&own).unwrap();
        fs::create_dir(&dist).unwrap();
        check(&own).unwrap();
        for more in ["", "again"] {
            put(&dist, &release(&own, more)).unwrap();
            check(&own).unwrap();
        }
        assert!(refused(&names("1.0.1", false)).contains("precast-1.0.1.cdx.json"));
        assert!(refused(&names("1.0.0", true)).contains("SHA256SUMS-unsigned is there"));
        let kernels = dist.join(own.kernels());
        fs::write(&kernels, "changed").unwrap();
        assert!(refused(&own).contains("precast-kernels-1.0.0-unsigned.tar is not as"));
        put(&dist, &release(&own, "")).unwrap();
        fs::write(dist.join("notes"), "").unwrap();
        assert!(refused(&own).contains("notes is not of a release"));
        fs::remove_file(dist.join("notes")).unwrap();
        fs::write(dist.join("SHA256SUMS"), "").unwrap();
        assert!(refused(&own).contains("two releases"));
        fs::remove_file(dist.join("SHA256SUMS")).unwrap();
        fs::remove_file(&kernels).unwrap();
        check(&own).unwrap();
        fs::remove_file(dist.join(own.sums())).unwrap();
        assert!(refused(&own).contains("no SHA256SUMS and no SHA256SUMS-unsigned"));
    }

    #[test]
    fn a_write_that_fails_leaves_no_half_release() {
        let dir = tempfile::tempdir().unwrap();
        let (dist, own) = (dir.path().join("dist"), names("1.0.0", false));
        put(&dist, &release(&own, "")).unwrap();
        let mut files = release(&own, "new");
        files.insert("zz/no such folder".to_owned(), Vec::new());
        put(&dist, &files).unwrap_err();
        check_replaceable(&dist, &own).unwrap();
        assert_eq!(fs::read_to_string(dist.join(own.kernels())).unwrap(), "kernels ");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
