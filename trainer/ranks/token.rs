//! The secret of a job.

use std::io;

use hmac::{Hmac, KeyInit, Mac};
use precast_fatbins::Digest;
use rand::TryRng;
use rand::rngs::SysRng;
use sha2::Sha256;

/// The secret that the ranks of a job share, and nobody else has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl Token {
    /// Made of a secret, or of what a launcher calls the job.
    pub fn of(parts: &[String]) -> Self {
        Self(Digest::of_parts("precast.token", parts.iter().map(|part| part.as_bytes())).0)
    }

    /// Computes what proves that one knows the token: HMAC-SHA256 of the parts.
    pub fn proof(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// True for the proof of the same parts; takes as long for any other.
    pub fn proves(&self, proof: &[u8; 32], parts: &[&[u8]]) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.chain_update(Digest::of_parts("precast.rank", parts.iter().copied()).0)
    }
}

/// Returns random bytes from the system.
///
/// # Errors
/// Where the system has none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_a_token_and_of_its_parts() {
        let [own, other] = ["a job", "another"].map(|job| Token::of(&[job.to_owned()]));
        let proof = own.proof(&[b"server", b"nonce"]);
        assert!(own.proves(&proof, &[b"server", b"nonce"]));
        assert!(!other.proves(&proof, &[b"server", b"nonce"]) && !own.proves(&proof, &[b"servern", b"once"]));
        // RFC 2104, written out: what ranks of earlier versions prove themselves by.
        let padded = |with: u8| -> Vec<u8> { (0..64).map(|i| with ^ own.0.get(i).unwrap_or(&0)).collect() };
        let message = Digest::of_parts("precast.rank", [&b"server"[..], b"nonce"]).0;
        let inner = Digest::of(&[padded(0x36), message.to_vec()].concat()).0;
        assert_eq!(proof, Digest::of(&[padded(0x5c), inner.to_vec()].concat()).0);
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
