//! Checks detached signatures by trusted keys: Ed25519 in minisign's format, prehashed, in `FILE.minisig`.

use std::fmt;
use std::path::{Path, PathBuf};

use minisign_verify::{Error, PublicKey, Signature};
use precast_system::input;

/// A public key whose holder's bundles may be used.
#[derive(Clone, Debug)]
pub struct TrustedKey {
    key: PublicKey,
    text: String,
}

/// A signature that trusted keys do not confirm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The text is neither a public key nor a file with one.
    #[error("`{0}` is not a minisign public key (56 characters of base64), nor a file that holds one")]
    NotAKey(String),
    /// A key is trusted and the file has no signature.
    #[error("not signed: no {}, and a trusted key is configured\nprecast-aot sign FILE --key KEY signs \
        it", .0.display())]
    Missing(PathBuf),
    /// The signature file does not parse.
    #[error("{} is not a minisign signature of a prehashed file", .0.display())]
    Malformed(PathBuf),
    /// An untrusted key signed the file.
    #[error("{} was made with a key other than the trusted {}", path.display(), keys.join(", "))]
    OtherKey {
        /// Signature file.
        path: PathBuf,
        /// Trusted keys, in base64.
        keys: Vec<String>,
    },
    /// A trusted key signed other bytes.
    #[error("{} does not sign these bytes: the file or the signature was altered", .0.display())]
    Altered(PathBuf),
}

/// Returns the path of a file's signature, by `minisign`'s convention.
pub fn signature_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".minisig");
    name.into()
}

/// True if a text is one line of base64 behind each comment of these kinds, as minisign writes it, and nothing else:
/// its library skips what it does not need.
fn has_lines<const N: usize>(text: &str, kinds: [&str; N]) -> bool {
    let comments: Vec<&str> = text.lines().step_by(2).collect();
    let is_of =
        |(comment, kind): (&&str, &str)| comment.strip_prefix(kind).is_some_and(|rest| rest.starts_with(" comment:"));
    text.lines().count() == 2 * N && comments.iter().zip(kinds).all(is_of)
}

impl TrustedKey {
    /// Reads a public key: minisign's base64, or a file as `minisign -G` writes it.
    ///
    /// # Errors
    /// [`SignatureError::NotAKey`] if the text is neither.
    pub fn find(text: &str) -> Result<Self, SignatureError> {
        let file = input::read_text(Path::new(text), input::SETTINGS_BYTES).unwrap_or_default();
        let of_file = file.lines().nth(1).filter(|_| has_lines(&file, ["untrusted"]));
        let line = of_file.unwrap_or(text).trim();
        let key = PublicKey::from_base64(line).map_err(|_| SignatureError::NotAKey(text.to_owned()))?;
        Ok(Self { key, text: line.to_owned() })
    }

    /// Checks a signature of `bytes`; `path` is its path, for messages. Returns the key that signed.
    ///
    /// # Errors
    /// [`SignatureError`] if none of the keys signed these bytes.
    pub fn check<'k>(
        keys: &'k [Self],
        bytes: &[u8],
        signature: Option<&str>,
        path: &Path,
    ) -> Result<&'k Self, SignatureError> {
        let signature = signature.ok_or_else(|| SignatureError::Missing(path.to_owned()))?;
        let signature = Some(signature).filter(|text| has_lines(text, ["untrusted", "trusted"]));
        let signature = signature.and_then(|text| Signature::decode(text).ok());
        let signature = signature.ok_or_else(|| SignatureError::Malformed(path.to_owned()))?;
        let mut error =
            SignatureError::OtherKey { path: path.to_owned(), keys: keys.iter().map(ToString::to_string).collect() };
        for key in keys {
            match key.key.verify(bytes, &signature, false) {
                Ok(()) => return Ok(key),
                Err(Error::UnexpectedKeyId) => {}
                Err(Error::InvalidSignature) => error = SignatureError::Altered(path.to_owned()),
                Err(_) => error = SignatureError::Malformed(path.to_owned()),
            }
        }
        Err(error)
    }
}

impl fmt::Display for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
