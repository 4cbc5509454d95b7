//! Signs in minisign's format, without a time stamp.

use std::io::Cursor;

use minisign::{PublicKey, SecretKey, SecretKeyBox};
use precast_core::Digest;

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
    let boxed = SecretKeyBox::from_string(key).map_err(wrong)?;
    let secret = match std::env::var("PRECAST_KEY_PASSWORD") {
        Ok(password) => boxed.into_secret_key(Some(password)),
        Err(_) => boxed.into_unencrypted_secret_key(),
    };
    let secret: SecretKey =
        secret.map_err(|error| format!("{error}\nan encrypted key needs its password in PRECAST_KEY_PASSWORD"))?;
    let public = PublicKey::from_secret_key(&secret).map_err(wrong)?;
    let comment = format!("signature from {by}");
    let signature = minisign::sign(Some(&public), &secret, Cursor::new(bytes), Some(trusted), Some(&comment));
    signature.map(|signature| signature.into_string()).map_err(wrong)
}
