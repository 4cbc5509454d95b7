//! The key of a sequence.

use std::fmt;

use precast_fatbins::Digest;

/// A digest of a sequence as a device gets it: equal sequences have one, wherever they come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub(super) [u8; 32]);

impl Key {
    /// Digests `seq_len` token ids and as many targets, masked ones among them.
    ///
    /// # Panics
    /// If there are not as many targets as ids.
    pub fn of(ids: &[u32], targets: &[u32]) -> Self {
        assert_eq!(ids.len(), targets.len(), "a target for each id");
        let bytes = [ids, targets].map(|tokens| tokens.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
        Self(Digest::of_parts("precast.teacher-cache", bytes.iter().map(Vec::as_slice)).0)
    }

    /// Returns its bytes, as they are in the index.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Digest(self.0).short())
    }
}
