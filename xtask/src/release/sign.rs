//! Signs the sums, and with them every file. The key is opened before anything is built.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use precast_fatbins::{SecretKeyError, open_secret_key};

const PASSWORD: &str = "PRECAST_KEY_PASSWORD";
const OPENS: &str = "`cargo xtask release-key FILE` writes an encrypted key opened, for --key FILE";

/// A secret key that was opened once.
pub struct Key {
    path: PathBuf,
    text: String,
}

impl Key {
    /// Reads a key that nobody else can, and tries it. It is not encrypted: whatever a build starts could read a
    /// password.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_beside(path, std::env::var_os(PASSWORD).as_deref())
    }

    fn open_beside(path: &Path, password: Option<&OsStr>) -> Result<Self> {
        let shown = path.display();
        ensure!(password.is_none(), "{PASSWORD} is set, and a build runs beside it: unset it. {OPENS}");
        let mode = fs::metadata(path).with_context(|| shown.to_string())?.permissions().mode();
        ensure!(mode & 0o077 == 0, "{shown} can be read by others than its owner: chmod 600 {shown}");
        let text = fs::read_to_string(path).with_context(|| shown.to_string())?;
        ensure!(!text.trim().is_empty(), "{shown} is empty: without a key leave --key out");
        match open_secret_key(&text, None) {
            Ok(_) => Ok(Self { path: path.to_owned(), text }),
            Err(SecretKeyError::NoPassword) => bail!("{shown} is encrypted: {OPENS}"),
            Err(error) => bail!("{shown}: {error}"),
        }
    }

    /// Signs bytes; the trusted comment is a part of what is signed.
    pub fn sign(&self, bytes: &[u8], comment: &str) -> Result<String> {
        match precast_fatbins::sign_with(&self.text, bytes, "cargo xtask release", comment) {
            Ok(signature) => Ok(signature),
            Err(reason) => bail!("{}: {reason}", self.path.display()),
        }
    }
}

/// Returns what the signature says of the sums: `SHA256SUMS` of another version has another.
pub fn comment(version: &str, commit: &str) -> String {
    format!("precast {version} commit:{commit}")
}

#[cfg(test)]
mod tests {
    use minisign::KeyPair;
    use minisign_verify::{PublicKey, Signature};

    use super::*;

    fn put(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_signature_covers_the_sums_version_and_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        put(&path, &pair.sk.to_box(None).unwrap().into_string(), 0o600);
        let key = Key::open(&path).unwrap();
        let signature = key.sign(b"sums", &comment("1.2.3", "abc")).unwrap();
        assert!(signature.contains("\ntrusted comment: precast 1.2.3 commit:abc\n"), "{signature}");
        let public = PublicKey::from_base64(&pair.pk.to_base64()).unwrap();
        let verify = |text: &str, bytes: &[u8]| public.verify(bytes, &Signature::decode(text).unwrap(), false);
        verify(&signature, b"sums").unwrap();
        verify(&signature, b"other sums").unwrap_err();
        verify(&signature.replace("1.2.3", "1.2.4"), b"sums").unwrap_err();
    }

    #[test]
    fn a_key_that_cannot_sign_is_refused_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let text = pair.sk.to_box(None).unwrap().into_string();
        let refused = || {
            let message = format!("{:#}", Key::open(&path).err().unwrap());
            let secret = text.lines().nth(1).unwrap();
            assert!(message.contains(&path.display().to_string()) && !message.contains(secret), "{message}");
            message
        };
        assert!(refused().contains("No such file"));
        for mode in [0o640, 0o604, 0o660] {
            put(&path, &text, mode);
            assert!(refused().contains("chmod 600"), "{mode:o}");
        }
        put(&path, "\n", 0o600);
        assert!(refused().contains("is empty"));
        put(&path, "no key", 0o600);
        assert!(
            refused().ends_with(
                ": not a secret key as minisign writes it\n`precast-aot sign --new-key --key NEW` makes one"
            )
        );
        // The mark of an encrypted key, `EdScB2` in base64; making one takes seconds.
        assert!(text.contains("\nRWQAAEIy"), "Ed, no encryption, B2");
        put(&path, &text.replace("\nRWQAAEIy", "\nRWRTY0Iy"), 0o600);
        assert!(refused().ends_with(&format!(" is encrypted: {OPENS}")));
        put(&path, &text, 0o600);
        Key::open_beside(&path, None).unwrap();
        for password in ["", "of no use"] {
            let message = Key::open_beside(&path, Some(OsStr::new(password))).err().unwrap().to_string();
            assert!(message.starts_with("PRECAST_KEY_PASSWORD is set") && message.contains(OPENS), "{message}");
        }
    }
}
