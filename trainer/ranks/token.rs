//! The secret of a job.

use precast_fatbins::Digest;

/// What the ranks of a job know, and nobody else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl Token {
    /// Made of a secret, or of what a launcher calls the job.
    pub fn of(parts: &[String]) -> Self {
        Self(Digest::of_parts("precast.token", parts.iter().map(|part| part.as_bytes())).0)
    }

    /// HMAC-SHA256.
    pub fn proof(&self, parts: &[&[u8]]) -> [u8; 32] {
        let padded = |with: u8| -> Vec<u8> {
            let mut block = [with; 64];
            block.iter_mut().zip(self.0).for_each(|(byte, key)| *byte ^= key);
            block.to_vec()
        };
        let message = Digest::of_parts("precast.rank", parts.iter().copied()).0;
        let inner = Digest::of(&[padded(0x36), message.to_vec()].concat()).0;
        Digest::of(&[padded(0x5c), inner.to_vec()].concat()).0
    }
}
