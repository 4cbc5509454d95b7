//! Sequences of a micro-batch, which lie end to end in its places, as data.

use precast_core::plan::{Builder, Tensor};
use precast_kernels::{Dtype, positions, sequences};

use crate::category;

/// Shape of a micro-batch: places for tokens, and the sequences that may lie in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Places in all.
    pub tokens: u32,
    /// Sequences at most.
    pub sequences: u32,
    /// Tokens of a sequence at most.
    pub seq_len: u32,
}

impl Shape {
    /// Returns the shape of `batch` full sequences.
    pub fn full(batch: u32, seq_len: u32) -> Self {
        Self { tokens: batch * seq_len, sequences: batch, seq_len }
    }

    /// Returns the shape of as many places, in which rows of any length lie end to end: at most
    /// [`Self::most_rows`], and sequences of padding behind them.
    pub fn packed(batch: u32, seq_len: u32) -> Self {
        Self { sequences: Self::most_rows(batch, seq_len) + batch, ..Self::full(batch, seq_len) }
    }

    /// Returns the rows that a micro-batch of so many places has at most: memory is planned for them.
    pub fn most_rows(batch: u32, seq_len: u32) -> u32 {
        batch.max((u64::from(batch) * u64::from(seq_len) / 16) as u32)
    }
}

/// Sequences of a micro-batch: inputs that the host sends with its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// Both, sent in one copy.
    pub all: Tensor,
    /// Position of each token in its sequence.
    pub(crate) positions: Tensor,
    /// Place of the first token and tokens of each, the longest first: `[sequences, 2]`.
    pub(crate) list: Tensor,
    /// Tokens of a sequence at most.
    pub(crate) seq_len: u32,
}

impl Sequences {
    pub(crate) fn declare(b: &mut Builder, shape: Shape) -> Self {
        let all = b.persistent("sequences", category::INPUTS, Dtype::U32, Self::words_of(shape));
        Self::within(all, shape)
    }

    /// Words that a shape takes.
    pub(crate) fn words_of(shape: Shape) -> u64 {
        Self::column(shape) + 2 * u64::from(shape.sequences)
    }

    /// Takes a part of other inputs.
    pub(crate) fn within(all: Tensor, shape: Shape) -> Self {
        let positions = all.slice(0, shape.tokens.into());
        let list = all.slice(Self::column(shape), 2 * u64::from(shape.sequences));
        Self { all, positions, list, seq_len: shape.seq_len }
    }

    /// Words of the positions, to a multiple of 16 bytes.
    fn column(shape: Shape) -> u64 {
        u64::from(shape.tokens).next_multiple_of(4)
    }

    /// Returns the tokens of a sequence, at most.
    pub fn seq_len(&self) -> u32 {
        self.seq_len
    }

    /// Sequences that there is room for.
    pub(crate) fn count(&self) -> u32 {
        (self.list.elems / 2) as u32
    }

    /// Returns what is sent for full sequences.
    pub fn full(&self) -> Vec<u32> {
        self.words(&vec![self.seq_len; self.positions.elems as usize / self.seq_len as usize])
    }

    /// Returns what is sent for sequences of these lengths, which take all places.
    ///
    /// # Panics
    /// If they take more or fewer places, or there are too many.
    pub fn words(&self, lengths: &[u32]) -> Vec<u32> {
        let mut words: Vec<u32> = positions(lengths).collect();
        assert_eq!(words.len() as u64, self.positions.elems, "sequences that take all places");
        words.resize((self.all.elems - self.list.elems) as usize, 0);
        words.extend(sequences(lengths, self.count() as usize));
        words
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::{Arch, KERNELS};

    use super::*;

    #[test]
    fn full_sequences_are_a_case_of_packed_ones() {
        let mut b = Builder::new(&KERNELS, Arch::Sim);
        let of = |b: &mut Builder, shape| Sequences::declare(b, shape);
        assert_eq!(of(&mut b, Shape::full(2, 3)).words(&[3, 3]), [0, 1, 2, 0, 1, 2, 0, 0, 0, 3, 3, 3]);
        let packed = of(&mut b, Shape::packed(2, 3)).words(&[1, 3, 2]);
        assert_eq!(packed, [0, 0, 1, 2, 0, 1, 0, 0, 1, 3, 4, 2, 0, 1, 0, 0]);
        assert_eq!(Shape::packed(8, 1024).sequences, 520);
    }
}
