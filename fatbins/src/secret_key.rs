//! Opens secret keys in minisign's text format.

use std::ops::Range;

use ct_codecs::{Base64, Decoder};
use minisign::{ErrorKind, PublicKey, SecretKey, SecretKeyBox};

/// Names the variable with the password of an encrypted key.
const PASSWORD: &str = "PRECAST_KEY_PASSWORD";

/// Bytes of a secret key in all.
const LENGTH: usize = 158;
/// Bytes that name the signature, Ed25519, and what they hold.
const SIGNATURE: (Range<usize>, &[u8]) = (0..2, b"Ed");
/// Bytes that name the encryption: scrypt, or none.
const ENCRYPTION: Range<usize> = 2..4;
const SCRYPT: &[u8] = b"Sc";
/// Bytes that name the checksum, BLAKE2b-256, and what they hold.
const CHECKSUM: (Range<usize>, &[u8]) = (4..6, b"B2");
/// Bytes of scrypt's operations, and the most that minisign asks for: more of them would take all memory.
const OPERATIONS: Range<usize> = 38..46;
const MOST_OPERATIONS: u64 = 33_554_432;
/// Bytes of the checksum. `minisign -G -W` leaves them zero.
const SUM: Range<usize> = 126..LENGTH;

/// Failure to open a secret key. No message shows any of the key.
#[derive(Debug, thiserror::Error)]
pub enum SecretKeyError {
    /// The text is not a comment and 158 bytes in base64, or these are of another kind.
    #[error("not a secret key as minisign writes it\n`precast-aot sign --new-key --key NEW` makes one")]
    NotAKey,
    /// The key is encrypted, and there is no password.
    #[error("an encrypted key needs its password in {PASSWORD}")]
    NoPassword,
    /// The password is another.
    #[error("the password in {PASSWORD} is not that of the key")]
    Password,
    /// The key has an encryption that minisign does not write, or asks for more work than minisign does.
    #[error("a secret key whose encryption is none of minisign's")]
    Encryption,
    /// The key's checksum does not match, or its two halves do not belong together.
    #[error("a damaged secret key")]
    Damaged,
}

/// Returns the password of encrypted keys from the environment, if there is one.
pub(crate) fn password() -> Option<String> {
    let value = std::env::var_os(PASSWORD).filter(|value| !value.is_empty());
    value.map(|value| value.to_string_lossy().into_owned())
}

/// Opens a secret key, with its password if it is encrypted; the returned key is not encrypted.
///
/// # Errors
/// [`SecretKeyError`].
pub fn open_secret_key(text: &str, password: Option<&str>) -> Result<SecretKey, SecretKeyError> {
    // A secret that was pasted may begin with an empty line, or end in blanks.
    let mut lines = text.trim().lines().map(str::trim);
    let (comment, encoded) = lines.next().zip(lines.next()).ok_or(SecretKeyError::NotAKey)?;
    let bytes = Base64::decode_to_vec(encoded, None).map_err(|_| SecretKeyError::NotAKey)?;
    if bytes.len() != LENGTH || [SIGNATURE, CHECKSUM].into_iter().any(|(range, kind)| bytes[range] != *kind) {
        return Err(SecretKeyError::NotAKey);
    }
    let boxed = SecretKeyBox::from(format!("{comment}\n{encoded}\n"));
    let key = match &bytes[ENCRYPTION] {
        SCRYPT => decrypted(boxed, &bytes, password)?,
        [0, 0] if bytes[SUM].iter().all(|&byte| byte == 0) => from_bytes(&bytes)?,
        [0, 0] => boxed.into_unencrypted_secret_key().map_err(|_| SecretKeyError::Damaged)?,
        _ => return Err(SecretKeyError::Encryption),
    };
    // Without a checksum, a signature that verifies shows that the seed is that of the public key beside it.
    let trial = PublicKey::from_secret_key(&key)
        .and_then(|public| minisign::sign(Some(&public), &key, &b""[..], Some(""), None));
    trial.map_err(|_| SecretKeyError::Damaged)?;
    Ok(key)
}

/// Decrypts a key, whose bytes say then that it is not encrypted; its checksum does not cover what says so.
fn decrypted(boxed: SecretKeyBox, bytes: &[u8], password: Option<&str>) -> Result<SecretKey, SecretKeyError> {
    let password = password.ok_or(SecretKeyError::NoPassword)?;
    let operations: [u8; 8] = bytes[OPERATIONS].try_into().map_err(|_| SecretKeyError::NotAKey)?;
    if u64::from_le_bytes(operations) > MOST_OPERATIONS {
        return Err(SecretKeyError::Encryption);
    }
    let opened = boxed.into_secret_key(Some(password.to_owned())).map_err(|error| match error.kind() {
        ErrorKind::Verify => SecretKeyError::Password,
        _ => SecretKeyError::Encryption,
    })?;
    let mut bytes = opened.to_bytes();
    bytes[ENCRYPTION].fill(0);
    from_bytes(&bytes)
}

fn from_bytes(bytes: &[u8]) -> Result<SecretKey, SecretKeyError> {
    SecretKey::from_bytes(bytes).map_err(|_| SecretKeyError::NotAKey)
}

#[cfg(test)]
mod tests {
    use ct_codecs::Encoder;
    use minisign::KeyPair;

    use super::*;

    /// Throw-away keys: of `minisign -G -W`, version 0.11, and encrypted by `of no use` at the least cost.
    const UNCHECKED: &str = include_str!("../tests/keys/unchecked.key");
    const ENCRYPTED: &str = include_str!("../tests/keys/encrypted.key");
    const UNCHECKED_PUBLIC: &str = "RWTdtaOfekdBN3Liv0/b01NeBR322rmNvrORb2rRaEl8SMSPlmts9XGF";
    const ENCRYPTED_PUBLIC: &str = "RWRwcmVjYXN0MAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";

    #[test]
    fn keys_of_every_minisign_open() {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let checked = pair.sk.to_box(None).unwrap().into_string();
        for (text, password, public) in [
            (UNCHECKED, None, UNCHECKED_PUBLIC),
            // A password that is there for another key changes nothing.
            (UNCHECKED, Some("of no use"), UNCHECKED_PUBLIC),
            (ENCRYPTED, Some("of no use"), ENCRYPTED_PUBLIC),
            (&checked, None, &pair.pk.to_base64()),
            (&checked, Some("of no use"), &pair.pk.to_base64()),
        ] {
            for text in [text.to_owned(), text.replace('\n', "\r\n"), format!("\n{}", text.replace('\n', " \n"))] {
                let key = open_secret_key(&text, password).unwrap();
                assert_eq!(PublicKey::from_secret_key(&key).unwrap().to_base64(), public);
                // What `release-key` writes of it opens again, without a password.
                let opened = open_secret_key(&key.to_box(None).unwrap().into_string(), None).unwrap();
                assert_eq!(opened.to_bytes(), key.to_bytes());
            }
        }
    }

    /// A key with other bytes at a place.
    fn changed(text: &str, place: usize, bytes: &[u8]) -> String {
        let mut key = Base64::decode_to_vec(text.lines().nth(1).unwrap(), None).unwrap();
        key[place..][..bytes.len()].copy_from_slice(bytes);
        format!("comment\n{}\n", Base64::encode_to_string(&key).unwrap())
    }

    #[test]
    fn what_is_no_key_or_does_not_open_is_named_and_not_shown() {
        let zeros = changed(UNCHECKED, 0, &[0; LENGTH]);
        let used = Some("of no use");
        let messages: Vec<String> = [
            ("nothing", "", None),
            ("no key", "no key", None),
            ("no base64", "comment\nno key", used),
            ("short", &UNCHECKED.replace("AAA=\n", ""), None),
            ("zeros", &zeros, None),
            ("another signature", &changed(UNCHECKED, 0, b"EC"), None),
            ("another checksum", &changed(UNCHECKED, 4, b"B3"), None),
            ("another encryption", &changed(ENCRYPTED, 2, b"Ar"), used),
            ("too many operations", &changed(ENCRYPTED, OPERATIONS.start, &[255; 8]), used),
            ("too much memory", &changed(ENCRYPTED, OPERATIONS.end, &[255; 8]), used),
            ("no password", ENCRYPTED, None),
            ("another password", ENCRYPTED, Some("another")),
            ("another sum", &changed(UNCHECKED, SUM.start, &[7]), None),
            ("another seed", &changed(UNCHECKED, 62, b"seed"), None),
        ]
        .map(|(what, text, password)| format!("{what}: {}", open_secret_key(text, password).unwrap_err()))
        .into();
        insta::assert_snapshot!(messages.join("\n"));
    }
}
