//! The key of a sequence.

use std::fmt;

use precast_fatbins::Digest;
use precast_kernels::abi::MASKED_TOKEN;

use crate::data::Chunk;

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

    /// Digests the ids and targets of a row whose last token is `end`, with padding up to `seq_len`.
    pub fn of_row(ids: &[u32], targets: &[u32], end: u32, seq_len: u32) -> Self {
        let (mut ids, mut targets) = ([ids, &[end]].concat(), targets.to_vec());
        ids.resize(seq_len as usize, 0);
        targets.resize(seq_len as usize, MASKED_TOKEN);
        Self::of(&ids, &targets)
    }

    /// Lays a chunk out as a sequence of so many tokens. Returns its key, its ids and its targets.
    pub fn of_chunk(chunk: &Chunk, seq_len: u32) -> (Self, Vec<u32>, Vec<u32>) {
        let (mut ids, mut targets) = (vec![0; seq_len as usize], vec![MASKED_TOKEN; seq_len as usize]);
        chunk.lay_out(&mut ids, &mut targets);
        (Self::of(&ids, &targets), ids, targets)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::MicroBatch;

    proptest! {
        /// A cache finds a row by the same key wherever it lies.
        #[test]
        fn a_packed_row_has_the_key_of_a_padded_one(
            rows in prop::collection::vec(prop::collection::vec((1u32..50, any::<bool>()), 2..10), 1..5),
        ) {
            const SEQ_LEN: u32 = 8;
            let chunk = |row: &Vec<(u32, bool)>| {
                let label = |(id, counts): &(u32, bool)| (*id, if *counts { *id } else { MASKED_TOKEN });
                let (ids, labels) = row.iter().map(label).unzip();
                Chunk { ids, labels: Some(labels), ..Chunk::default() }
            };
            let chunks: Vec<Chunk> = rows.iter().map(chunk).collect();
            let batch = MicroBatch::packed(&chunks, (5, SEQ_LEN as usize));
            let [ids, targets] = [&batch.ids, &batch.targets].map(|tokens| batch.sequences(tokens));
            for (index, chunk) in chunks.iter().enumerate() {
                let found = Key::of_row(ids[index], targets[index], batch.ends[index], SEQ_LEN);
                prop_assert_eq!(found, Key::of_chunk(chunk, SEQ_LEN).0);
            }
        }
    }
}
