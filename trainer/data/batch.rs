//! Chunks to micro-batches: which chunk comes when, and the words the device is sent.

use precast_kernels::abi::MASKED_TOKEN;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Chunk, Dataset};

/// The order in which a dataset is trained on: a function of a position, so that a resumed run continues
/// exactly where it was.
pub struct Batches<'d> {
    dataset: &'d Dataset,
    batch: usize,
    seq_len: usize,
    shuffle: Option<u64>,
    /// Order of the epoch it was last asked for.
    epoch: (u64, Vec<u32>),
}

/// One micro-batch, as the plan's inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// Token ids, batch x seq_len; 0 where padded.
    pub ids: Vec<u32>,
    /// The token after each, or [`MASKED_TOKEN`].
    pub targets: Vec<u32>,
    /// The batch's ids in ascending order, for gradients of the embedding without atomics.
    pub sorted_ids: Vec<u32>,
    /// Where each sorted id came from; ascending within an id.
    pub sorted_positions: Vec<u32>,
    /// Targets that are not masked.
    pub counted: u32,
}

impl<'d> Batches<'d> {
    /// Chunks in order, wrapping around; with a seed, each pass in an order of its own.
    pub fn new(dataset: &'d Dataset, batch: u32, seq_len: u32, shuffle: Option<u64>) -> Self {
        let mut batches =
            Self { dataset, batch: batch as usize, seq_len: seq_len as usize, shuffle, epoch: (0, Vec::new()) };
        batches.epoch = (0, batches.order(0));
        batches
    }

    fn order(&self, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.dataset.chunks().len() as u32).collect();
        if let Some(seed) = self.shuffle {
            let mut rng = Pcg64Mcg::seed_from_u64(seed ^ epoch.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            for last in (1..order.len()).rev() {
                order.swap(last, rng.random_range(0..=last));
            }
        }
        order
    }

    /// The micro-batch with this number, counted from 0 over the whole run.
    pub fn micro_batch(&mut self, number: u64) -> MicroBatch {
        let chunks = self.chunks_of(number);
        MicroBatch::of(chunks.iter().map(|chunk| self.row(*chunk)), self.seq_len)
    }

    /// Targets of a micro-batch that are not masked.
    pub fn counted(&mut self, number: u64) -> u64 {
        let rows = self.chunks_of(number);
        rows.into_iter().map(|row| self.row(row).counted() as u64).sum()
    }

    /// Which chunks are the rows of a micro-batch.
    pub fn chunks_of(&mut self, number: u64) -> Vec<usize> {
        (0..self.batch as u64).map(|row| self.chunk(number * self.batch as u64 + row)).collect()
    }

    pub fn row(&self, chunk: usize) -> &'d Chunk {
        &self.dataset.chunks()[chunk]
    }

    fn chunk(&mut self, position: u64) -> usize {
        let count = self.dataset.chunks().len() as u64;
        let epoch = position / count;
        if self.epoch.0 != epoch {
            self.epoch = (epoch, self.order(epoch));
        }
        self.epoch.1[(position % count) as usize] as usize
    }
}

impl MicroBatch {
    /// Rows of tokens that are predicted as themselves.
    pub fn new(rows: &[&[u32]], seq_len: usize) -> Self {
        let chunks: Vec<Chunk> = rows.iter().map(|row| Chunk::plain(*row)).collect();
        Self::of(chunks.iter(), seq_len)
    }

    /// Lays chunks of at most seq_len + 1 tokens out as inputs and targets. Missing tokens are 0, behind those that are there,
    /// and masked: attention is causal, so they change no loss that counts.
    pub fn of<'c>(chunks: impl ExactSizeIterator<Item = &'c Chunk>, seq_len: usize) -> Self {
        let mut ids = vec![0; chunks.len() * seq_len];
        let mut targets = vec![MASKED_TOKEN; chunks.len() * seq_len];
        for (row, chunk) in chunks.enumerate() {
            let place = |(slot, word): (&mut u32, &u32)| *slot = *word;
            ids[row * seq_len..][..seq_len].iter_mut().zip(&chunk.ids).for_each(place);
            targets[row * seq_len..][..seq_len].iter_mut().zip(chunk.targets()).for_each(place);
        }
        let counted = targets.iter().filter(|target| **target != MASKED_TOKEN).count() as u32;
        let mut sorted_positions: Vec<u32> = (0..ids.len() as u32).collect();
        sorted_positions.sort_by_key(|position| ids[*position as usize]);
        let sorted_ids = sorted_positions.iter().map(|position| ids[*position as usize]).collect();
        Self { ids, targets, sorted_ids, sorted_positions, counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(chunks: Vec<Vec<u32>>) -> Dataset {
        Dataset { chunks: chunks.into_iter().map(Chunk::plain).collect(), ..Dataset::empty() }
    }

    #[test]
    fn rows_are_shifted_padded_and_sorted() {
        let batch = MicroBatch::new(&[&[5, 3, 5, 9], &[3, 7]], 3);
        assert_eq!(batch.ids, [5, 3, 5, 3, 7, 0]);
        assert_eq!(batch.targets, [3, 5, 9, 7, MASKED_TOKEN, MASKED_TOKEN]);
        assert_eq!(batch.sorted_ids, [0, 3, 3, 5, 5, 7]);
        assert_eq!(batch.sorted_positions, [5, 1, 3, 0, 2, 4]);
        assert_eq!(batch.counted, 4);
    }

    #[test]
    fn labels_are_the_targets_and_masked_ones_are_not_counted() {
        let labels = Some(vec![5, MASKED_TOKEN, 7, MASKED_TOKEN]);
        let masked = Chunk { ids: vec![5, 3, 5, 9], labels };
        let batch = MicroBatch::of([&masked, &Chunk::plain([3, 7])].into_iter(), 3);
        assert_eq!(batch.ids, [5, 3, 5, 3, 7, 0]);
        assert_eq!(batch.targets, [MASKED_TOKEN, 7, MASKED_TOKEN, 7, MASKED_TOKEN, MASKED_TOKEN]);
        assert_eq!(batch.counted, 2);
        let data = Dataset { chunks: vec![masked, Chunk::plain([3, 7])], ..Dataset::empty() };
        assert_eq!(Batches::new(&data, 2, 3, None).counted(0), 2);
    }

    #[test]
    fn chunks_come_in_order_and_wrap_around() {
        let data = dataset((0..3).map(|i| vec![i, i]).collect());
        let mut batches = Batches::new(&data, 2, 1, None);
        let firsts: Vec<Vec<u32>> = (0..3).map(|number| batches.micro_batch(number).ids).collect();
        assert_eq!(firsts, [[0, 1], [2, 0], [1, 2]]);
        assert!((0..9).all(|number| batches.counted(number) == u64::from(batches.micro_batch(number).counted)));
    }

    #[test]
    fn shuffled_passes_differ_cover_everything_and_depend_on_the_position_alone() {
        let data = dataset((0..50).map(|i| vec![i, i]).collect());
        let mut batches = Batches::new(&data, 1, 1, Some(7));
        let mut pass = |epoch: u64| (0..50).map(|i| batches.micro_batch(epoch * 50 + i).ids[0]).collect::<Vec<_>>();
        let (first, second) = (pass(0), pass(1));
        assert_ne!(first, second);
        for pass in [&first, &second] {
            let mut sorted = pass.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        }
        let mut resumed = Batches::new(&data, 1, 1, Some(7));
        assert_eq!(resumed.micro_batch(60).ids[0], second[10]);
    }
}
