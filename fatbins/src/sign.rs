//! Signs in minisign's format, without a time stamp.

use std::io::Cursor;

use minisign::PublicKey;
use precast_core::Digest;

use crate::secret_key::{open_secret_key, password};

/// Signs bytes with a secret key in minisign's text format; an encrypted one is opened with $PRECAST_KEY_PASSWORD.
/// Returns the text of a `.minisig`.
///
/// # Errors
/// The reason that the key cannot be used.
pub fn sign(key: &str, bytes: &[u8], by: &str) -> Result<String, String> {
    sign_with(key, bytes, by, &format!("sha256:{}", Digest::of(bytes)))
}

/// Signs as [`sign`] does, with a trusted comment: a line that is signed with the bytes.
///
/// # Errors
/// The reason that the key cannot be used.
pub fn sign_with(key: &str, bytes: &[u8], by: &str, trusted: &str) -> Result<String, String> {
    let wrong = |error: minisign::PError| error.to_string();
    let secret = open_secret_key(key, password().as_deref()).map_err(|error| error.to_string())?;
    let public = PublicKey::from_secret_key(&secret).map_err(wrong)?;
    let comment = format!("signature from {by}");
    let signature = minisign::sign(Some(&public), &secret, Cursor::new(bytes), Some(trusted), Some(&comment));
    signature.map(|signature| signature.into_string()).map_err(wrong)
}
