//! Cargo's own configuration: its files above a checkout and in its home can change every byte of a build.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Tables, and keys of others, that say how cargo fetches, prints and starts, not what it builds. A source in place of
/// crates.io is not among them: its name is in the paths that panics print.
const HARMLESS: [&str; 13] = [
    "alias",
    "build.jobs",
    "build.target-dir",
    "cache",
    "cargo-new",
    "credential-alias",
    "doc",
    "future-incompat-report",
    "http",
    "install",
    "net",
    "registry",
    "term",
];

/// Refuses a file that cargo reads for this checkout and that sets anything else.
pub fn check(checkout: &Path, cargo_home: &Path) -> Result<()> {
    let above = checkout.ancestors().map(|folder| folder.join(".cargo"));
    for folder in above.chain([cargo_home.to_owned()]) {
        for name in ["config", "config.toml"] {
            let path = folder.join(name);
            // It may be a folder of somebody else's.
            if path.is_file() {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                check_text(&text).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

fn check_text(text: &str) -> Result<()> {
    let table: toml::Table = text.parse()?;
    let mut set: Vec<String> = Vec::new();
    for (name, value) in table.iter().filter(|(name, _)| !HARMLESS.contains(&name.as_str())) {
        match value {
            toml::Value::Table(keys) => set.extend(keys.keys().map(|key| format!("{name}.{key}"))),
            _ => set.push(name.clone()),
        }
    }
    let refused = set.into_iter().find(|key| !HARMLESS.contains(&key.as_str())).unwrap_or_default();
    ensure!(
        refused.is_empty(),
        "cargo is told {refused}, which can change a release: take it out, or make the release in another directory \
         with another CARGO_HOME"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_files_that_change_a_build_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (checkout, home) = (dir.path().join("above/checkout"), dir.path().join("home"));
        let check = || check(&checkout, &home).map_err(|error| format!("{error:#}"));
        for folder in [checkout.join(".cargo"), dir.path().join("above/.cargo"), home.clone()] {
            fs::create_dir_all(&folder).unwrap();
            check().unwrap();
            for name in ["config", "config.toml"] {
                let path = folder.join(name);
                fs::write(&path, "[build]\njobs = 1\n[net]\noffline = true\n[alias]\nxtask = 'run'\n").unwrap();
                check().unwrap();
                for (text, key) in [
                    ("[build]\njobs = 1\nrustflags = ['-Copt-level=1']", "build.rustflags"),
                    ("[profile.release]\nlto = false", "profile.release"),
                    ("target.x86_64-unknown-linux-gnu.linker = 'ld'", "target.x86_64-unknown-linux-gnu"),
                    ("[env]\nCFLAGS = '-O1'", "env.CFLAGS"),
                    ("[source.crates-io]\nreplace-with = 'mirror'", "source.crates-io"),
                    ("[registries.crates-io]\nprotocol = 'git'", "registries.crates-io"),
                    ("include = 'more.toml'", "include"),
                    ("paths = ['/a']", "paths"),
                ] {
                    fs::write(&path, text).unwrap();
                    let message = check().unwrap_err();
                    assert!(message.starts_with(&format!("{}: cargo is told {key}, ", path.display())), "{message}");
                }
                fs::write(&path, "[").unwrap();
                assert!(check().unwrap_err().starts_with(&path.display().to_string()));
                fs::remove_file(&path).unwrap();
            }
        }
    }

    #[test]
    fn the_configuration_of_this_checkout_is_harmless() {
        let own = fs::read_to_string(crate::run::root().join(".cargo/config.toml")).unwrap();
        check_text(&own).unwrap();
    }
}
