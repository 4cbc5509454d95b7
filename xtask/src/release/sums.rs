//! `SHA256SUMS`: the digest of every file, as `sha256sum -c` reads it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use precast_fatbins::Digest;

/// A line a file, sorted by name.
pub fn text(files: &BTreeMap<String, Vec<u8>>) -> String {
    files.iter().map(|(name, bytes)| format!("{}  {name}\n", Digest::of(bytes))).collect()
}

/// Digests by name.
pub fn parse(text: &str) -> Result<BTreeMap<String, Digest>> {
    let line = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        // A name, not a path that leads elsewhere.
        let is_name = !name.is_empty() && !name.contains('/') && ![".", ".."].contains(&name);
        Some((name.to_owned(), digest.parse().ok()?)).filter(|_| is_name)
    };
    text.lines().map(|text| line(text).with_context(|| format!("`{text}` is no digest and name"))).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::run::output;

    #[test]
    fn stock_sha256sum_checks_the_sums_and_names_stay_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let files = BTreeMap::from([("a b".to_owned(), b"alpha".to_vec()), ("c".to_owned(), Vec::new())]);
        files.iter().for_each(|(name, bytes)| std::fs::write(dir.path().join(name), bytes).unwrap());
        let sums = text(&files);
        std::fs::write(dir.path().join("SHA256SUMS"), &sums).unwrap();
        let mut check = Command::new("sha256sum");
        check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(dir.path());
        assert_eq!(output(&mut check).unwrap(), "a b: OK\nc: OK\n");
        std::fs::write(dir.path().join("c"), "changed").unwrap();
        output(&mut check).unwrap_err();
        let listed = parse(&sums).unwrap();
        assert!(listed.iter().all(|(name, digest)| Digest::of(&files[name]) == *digest) && listed.len() == 2);
        let digest = Digest::of(b"");
        for wrong in ["../c", "/c", "..", "", "a/b"] {
            assert!(parse(&format!("{digest}  {wrong}\n")).is_err(), "{wrong}");
        }
        assert!(parse(&format!("{digest} c\n")).is_err());
        assert!(parse("abc  c\n").is_err());
    }
}
