//! `cargo xtask release-key FILE`: the secret key of releases, out of the environment and into a file of its owner.
//!
//! The file is for one job, which signs with it. It is not encrypted: a password in the environment would be there for
//! whatever a build starts.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use minisign::{PublicKey, SecretKey};
use precast_fatbins::{SecretKeyError, open_secret_key};

/// Variables with the key as minisign writes it, and with its password if it is encrypted.
const KEY: &str = "PRECAST_RELEASE_KEY";
const PASSWORD: &str = "PRECAST_KEY_PASSWORD";

/// Writes the key of the environment to a new file that its owner alone reads, and prints its public key.
pub fn write(path: &Path) -> Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    write_opened(&variable(KEY), &variable(PASSWORD), path)
}

/// Removes the file of [`write()`], which a job that failed early has not got.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => println!("{}: is not there", path.display()),
        removed => {
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
            println!("{}: removed", path.display());
        }
    }
    Ok(())
}

fn write_opened(key: &str, password: &str, path: &Path) -> Result<()> {
    let key = opened(key, password)?;
    let public = PublicKey::from_secret_key(&key)?.to_base64();
    let text = key.to_box(Some("precast secret key, unencrypted"))?.into_string();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("cannot make {}", path.display()))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).context("the key cannot be written")?;
    println!("{}: the secret key of {public}", path.display());
    Ok(())
}

/// Decrypts a key with its password, if it has one.
fn opened(key: &str, password: &str) -> Result<SecretKey> {
    ensure!(!key.trim().is_empty(), "{KEY} is empty: it has the text of a secret key, as minisign -G writes it");
    let password = (!password.is_empty()).then_some(password);
    match open_secret_key(key, password) {
        Err(SecretKeyError::NoPassword) => bail!("{PASSWORD} is empty, and the key in {KEY} is encrypted"),
        opened => opened.context(KEY),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use minisign::SecretKeyBox;

    use super::*;

    /// A key of no use, encrypted by the password `of no use` at the least cost; and its public key.
    const ENCRYPTED: &str = include_str!("../../fatbins/tests/keys/encrypted.key");
    const PUBLIC: &str = "RWRwcmVjYXN0MAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";

    #[test]
    fn a_key_lies_opened_in_a_file_of_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("release.key");
        write_opened(ENCRYPTED, "of no use", &path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        let key = SecretKeyBox::from_string(&text).unwrap().into_unencrypted_secret_key().unwrap();
        assert_eq!(PublicKey::from_secret_key(&key).unwrap().to_base64(), PUBLIC);
        // It is taken as it is, and replaces nothing. So is a key that was never encrypted.
        write_opened(&text, "", &dir.path().join("again.key")).unwrap();
        let unchecked = include_str!("../../fatbins/tests/keys/unchecked.key");
        write_opened(unchecked, "", &dir.path().join("unchecked.key")).unwrap();
        assert!(write_opened(&text, "", &path).unwrap_err().to_string().contains("cannot make"));
        for _ in ["there", "not there"] {
            remove(&path).unwrap();
            assert!(!path.exists());
        }
        assert!(remove(dir.path()).unwrap_err().to_string().contains("cannot remove"));
    }

    #[test]
    fn a_key_that_does_not_open_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("release.key");
        for (key, password, said) in [
            ("", "of no use", "PRECAST_RELEASE_KEY is empty"),
            ("no key", "", "PRECAST_RELEASE_KEY: not a secret key"),
            ("no key", "of no use", "PRECAST_RELEASE_KEY: not a secret key"),
            (ENCRYPTED, "", "PRECAST_KEY_PASSWORD is empty"),
            (ENCRYPTED, "another", "the password in PRECAST_KEY_PASSWORD is not that of the key"),
        ] {
            let error = format!("{:#}", write_opened(key, password, &path).unwrap_err());
            assert!(error.contains(said) && !error.contains("RWRT"), "{said}: {error}");
            assert!(!path.exists());
        }
    }
}
