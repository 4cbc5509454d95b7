//! Opens secret keys in minisign's text format.

use std::ops::Range;

use ct_codecs::{Base64, Decoder};
use minisign::{SecretKey, SecretKeyBox};

/// Bytes of a secret key in all.
const LENGTH: usize = 158;
/// Bytes that name its encryption: zeros if it has none.
const ENCRYPTION: Range<usize> = 2..4;
/// Bytes of its BLAKE2b-256 checksum. `minisign -G -W` leaves them zero.
const CHECKSUM: Range<usize> = 126..LENGTH;

/// Failure to open a secret key. No message shows any of the key.
#[derive(Debug, thiserror::Error)]
pub enum SecretKeyError {
    /// The text is not a comment and 158 bytes in base64.
    #[error(
        "not a secret key as minisign writes it\n`precast-aot sign --new-key --key FILE` or `minisign -G` makes one"
    )]
    NotAKey,
    /// The key is encrypted, and there is no password.
    #[error("an encrypted key needs its password in PRECAST_KEY_PASSWORD")]
    NoPassword,
    /// The password is another, or the key has an encryption other than scrypt.
    #[error("the password in PRECAST_KEY_PASSWORD does not open it: {0}")]
    Password(minisign::PError),
    /// The checksum of a key without encryption does not match.
    #[error("a damaged secret key: its checksum does not match")]
    Damaged,
}

/// Opens a secret key, with its password if it is encrypted; the returned key is not encrypted.
///
/// # Errors
/// [`SecretKeyError`].
pub fn open_secret_key(text: &str, password: Option<&str>) -> Result<SecretKey, SecretKeyError> {
    let encoded = text.lines().nth(1).ok_or(SecretKeyError::NotAKey)?;
    let bytes = Base64::decode_to_vec(encoded, None).map_err(|_| SecretKeyError::NotAKey)?;
    if bytes.len() != LENGTH {
        return Err(SecretKeyError::NotAKey);
    }
    let zero = |range: Range<usize>| bytes[range].iter().all(|&byte| byte == 0);
    let boxed = SecretKeyBox::from(text.to_owned());
    if !zero(ENCRYPTION) {
        let password = password.ok_or(SecretKeyError::NoPassword)?;
        let mut opened = boxed.into_secret_key(Some(password.to_owned())).map_err(SecretKeyError::Password)?.to_bytes();
        opened[ENCRYPTION].fill(0);
        return SecretKey::from_bytes(&opened).map_err(SecretKeyError::Password);
    }
    if zero(CHECKSUM) {
        return SecretKey::from_bytes(&bytes).map_err(|_| SecretKeyError::NotAKey);
    }
    boxed.into_unencrypted_secret_key().map_err(|_| SecretKeyError::Damaged)
}

#[cfg(test)]
mod tests {
    use minisign::{KeyPair, PublicKey};

    use super::*;

    /// Throw-away keys: what `minisign -G -W` of minisign 0.11 wrote, and one encrypted by `of no use` at the least cost.
    const UNCHECKED: &str = "untrusted comment: minisign encrypted secret key\n\
        RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA3bWjn3pHQTdMW6zWy9AEoYsrFD/LiE1eWW5g\
        a/r2+X9kY3DABpuNFnLiv0/b01NeBR322rmNvrORb2rRaEl8SMSPlmts9XGFAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    const ENCRYPTED: &str = "untrusted comment: minisign encrypted secret key\n\
        RWRTY0IyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAAAAAAEAAAAAq+unkIP5pfBhx6mQN4hZd91JkzBEsxCThncY\
        Sp4DkgxsxxaqGV8d+6xxMcjDqIaQJwfG86+nnbW6JAggG6CWLnTLoXgouzHwrmW4kjzgEAxxVxjKWAn0FmdO5G/YU+ZaBEXmzopIhEQ=\n";
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
            let key = open_secret_key(text, password).unwrap();
            let opened = PublicKey::from_secret_key(&key).unwrap();
            assert_eq!(opened.to_base64(), public);
            minisign::sign(Some(&opened), &key, &b"bytes"[..], None, None).unwrap();
        }
    }

    #[test]
    fn what_is_no_key_or_does_not_open_is_named_and_not_shown() {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let mut bytes = pair.sk.to_bytes();
        bytes[CHECKSUM.end - 1] ^= 1;
        let damaged = SecretKey::from_bytes(&bytes).unwrap().to_box(None).unwrap().into_string();
        let short = UNCHECKED.replace("AAA=\n", "");
        let messages: Vec<String> = [
            ("", None),
            ("no key", None),
            ("comment\nno key", Some("of no use")),
            (&short, None),
            (ENCRYPTED, None),
            (ENCRYPTED, Some("another")),
            (&damaged, None),
        ]
        .map(|(text, password)| open_secret_key(text, password).unwrap_err().to_string())
        .into();
        insta::assert_snapshot!(messages.join("\n"));
    }
}
