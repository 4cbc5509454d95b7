//! Chunks to micro-batches: which chunk comes when, and the words the device is sent.

use std::collections::VecDeque;
use std::sync::Arc;

use precast_kernels::abi::MASKED_TOKEN;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Chunk, DataError, Stream, Streams, Summaries, mixture};

/// The order in which chunks are trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// That of the files.
    File,
    /// Within each `window` consecutive chunks a random one, another in each pass.
    Shuffled {
        seed: u64,
        /// Chunks.
        window: u32,
    },
}

/// The steps of a run: a function of the data, so that a run that begins again at the first step comes by the same
/// ones.
pub struct Batches {
    streams: Streams,
    batch: usize,
    seq_len: usize,
    order: Order,
    /// Those that have been looked at, before all others.
    ahead: VecDeque<Arc<Chunk>>,
    /// Window of each portion of the data.
    windows: Vec<Window>,
    /// Tokens of each portion that have been given.
    drawn: Vec<u64>,
}

/// Chunks of a portion of the data that have been read, in the order in which they are trained on.
#[derive(Clone, Default)]
struct Window {
    chunks: VecDeque<Arc<Chunk>>,
    /// Number of the pass, and of the window in it, that come next.
    next: (u64, u64),
}

/// One step's micro-batches.
pub struct Step {
    /// In order.
    pub rows: Vec<Arc<Chunk>>,
    batch: usize,
    seq_len: usize,
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
    /// Lengths of the sequences that lie end to end in the places, in order; they take all places.
    pub lengths: Vec<u32>,
    /// Targets that are not masked.
    pub counted: u32,
}

impl Batches {
    /// The chunks of streams, pass after pass, in an order; those of several portions by their shares of the tokens.
    pub fn new(streams: Streams, batch: u32, seq_len: u32, order: Order) -> Self {
        let (batch, seq_len) = (batch as usize, seq_len as usize);
        let (windows, drawn) = (vec![Window::default(); streams.portions.len()], vec![0; streams.portions.len()]);
        Self { streams, batch, seq_len, order, ahead: VecDeque::new(), windows, drawn }
    }

    /// Returns what a pass over the data comes to, once one over each portion has ended.
    pub fn passed(&self) -> Option<Summaries> {
        self.streams.passed()
    }

    /// The next step, of so many micro-batches.
    ///
    /// # Errors
    /// [`DataError`] of what is read.
    pub fn step(&mut self, micros: u32) -> Result<Step, DataError> {
        let count = self.look_ahead(micros)?;
        let rows = self.ahead.drain(..count).collect();
        Ok(Step { rows, batch: self.batch, seq_len: self.seq_len })
    }

    /// The same, which stays the next.
    ///
    /// # Errors
    /// [`DataError`] of what is read.
    pub fn peek(&mut self, micros: u32) -> Result<Step, DataError> {
        let count = self.look_ahead(micros)?;
        let rows = self.ahead.iter().take(count).map(Arc::clone).collect();
        Ok(Step { rows, batch: self.batch, seq_len: self.seq_len })
    }

    /// Reads the rows of the next step, and says how many there are.
    fn look_ahead(&mut self, micros: u32) -> Result<usize, DataError> {
        let count = self.batch * micros as usize;
        while self.ahead.len() < count {
            let row = self.row()?;
            self.ahead.push_back(row);
        }
        Ok(count)
    }

    fn row(&mut self) -> Result<Arc<Chunk>, DataError> {
        let portion = mixture::next(&self.drawn, &self.streams.corpus.portions);
        let (seed, most) = match self.order {
            Order::File => (0, 1),
            // A window holds as much of all portions as it would of one.
            Order::Shuffled { seed, window } => (seed, (window as usize).div_ceil(self.windows.len())),
        };
        let stream = &mut self.streams.portions[portion];
        let row = self.windows[portion].pop(stream, seed ^ portion_seed(portion), most)?;
        self.drawn[portion] += row.ids.len() as u64;
        Ok(row)
    }
}

/// Portions are permuted differently.
fn portion_seed(portion: usize) -> u64 {
    (portion as u64).wrapping_mul(0xA076_1D64_78BD_642F)
}

impl Window {
    fn pop(&mut self, stream: &mut Stream, seed: u64, most: usize) -> Result<Arc<Chunk>, DataError> {
        // A pass has something in it.
        while self.chunks.is_empty() {
            let (mut chunks, mut ended) = (Vec::new(), false);
            while !ended && chunks.len() < most {
                match stream.next_chunk()? {
                    Some(chunk) => chunks.push(chunk),
                    None => ended = true,
                }
            }
            let (pass, number) = self.next;
            permute(&mut chunks, seed, (pass, number));
            self.chunks = chunks.into();
            self.next = if ended { (pass + 1, 0) } else { (pass, number + 1) };
        }
        Ok(self.chunks.pop_front().expect("a window with something in it"))
    }
}

/// Puts the chunks of a window of a pass into a random order.
fn permute(chunks: &mut [Arc<Chunk>], seed: u64, (pass, window): (u64, u64)) {
    let of_pass = pass.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let of_window = window.wrapping_mul(0xD1B5_4A32_D192_ED03);
    let mut rng = Pcg64Mcg::seed_from_u64(seed ^ of_pass ^ of_window);
    for last in (1..chunks.len()).rev() {
        chunks.swap(last, rng.random_range(0..=last));
    }
}

impl Step {
    /// Divides rows into micro-batches; the last one may lack some.
    pub fn new(mut rows: Vec<Arc<Chunk>>, batch: u32, seq_len: u32) -> Self {
        rows.resize(rows.len().next_multiple_of(batch as usize), Arc::new(Chunk::plain([])));
        Self { rows, batch: batch as usize, seq_len: seq_len as usize }
    }

    /// Micro-batches.
    pub fn micros(&self) -> usize {
        self.rows.len() / self.batch
    }

    /// Targets of the step that are not masked.
    pub fn counted(&self) -> u64 {
        self.rows.iter().map(|row| row.counted() as u64).sum()
    }

    /// A micro-batch, laid out: a step may have more of them than there is memory.
    pub fn micro_batch(&self, number: usize) -> MicroBatch {
        let rows = &self.rows[number * self.batch..][..self.batch];
        MicroBatch::of(rows.iter().map(|row| &**row), (self.batch, self.seq_len))
    }
}

impl MicroBatch {
    /// Rows of tokens that are predicted as themselves.
    pub fn new(rows: &[&[u32]], seq_len: usize) -> Self {
        let chunks: Vec<Chunk> = rows.iter().map(|row| Chunk::plain(*row)).collect();
        Self::of(&chunks, (rows.len(), seq_len))
    }

    /// Lays chunks of at most seq_len + 1 tokens out as inputs and targets. Missing tokens are 0, behind those that are
    /// there, and masked: attention is causal, so they change no loss that counts. So are missing chunks.
    pub fn of<'c>(chunks: impl IntoIterator<Item = &'c Chunk>, (batch, seq_len): (usize, usize)) -> Self {
        let mut ids = vec![0; batch * seq_len];
        let mut targets = vec![MASKED_TOKEN; batch * seq_len];
        for (row, chunk) in chunks.into_iter().enumerate() {
            let [ids, targets] = [&mut ids, &mut targets].map(|all| &mut all[row * seq_len..][..seq_len]);
            chunk.lay_out(ids, targets);
        }
        Self::laid_out(ids, targets, vec![seq_len as u32; batch])
    }

    /// Lays rows out end to end, each in as many places as it predicts tokens; behind them is padding, in sequences of
    /// at most `seq_len` tokens, of which none counts.
    ///
    /// # Panics
    /// If there are more tokens than places.
    pub fn packed<'c>(chunks: impl IntoIterator<Item = &'c Chunk>, (batch, seq_len): (usize, usize)) -> Self {
        let mut ids = vec![0; batch * seq_len];
        let mut targets = vec![MASKED_TOKEN; batch * seq_len];
        let (mut lengths, mut first) = (Vec::new(), 0);
        for chunk in chunks {
            let length = chunk.targets().len();
            chunk.lay_out(&mut ids[first..][..length], &mut targets[first..][..length]);
            lengths.push(length as u32);
            first += length;
        }
        while first < ids.len() {
            let length = seq_len.min(ids.len() - first);
            lengths.push(length as u32);
            first += length;
        }
        Self::laid_out(ids, targets, lengths)
    }

    /// Divides ids or targets into those of each sequence.
    pub fn sequences<'t>(&self, mut tokens: &'t [u32]) -> Vec<&'t [u32]> {
        let take = |length: &u32| tokens.split_off(..*length as usize).expect("sequences that take all places");
        self.lengths.iter().map(take).collect()
    }

    fn laid_out(ids: Vec<u32>, targets: Vec<u32>, lengths: Vec<u32>) -> Self {
        let counted = targets.iter().filter(|target| **target != MASKED_TOKEN).count() as u32;
        let mut sorted_positions: Vec<u32> = (0..ids.len() as u32).collect();
        sorted_positions.sort_by_key(|position| ids[*position as usize]);
        let sorted_ids = sorted_positions.iter().map(|position| ids[*position as usize]).collect();
        Self { ids, targets, sorted_ids, sorted_positions, lengths, counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let step = Step { rows: vec![Arc::new(masked), Arc::new(Chunk::plain([3, 7]))], batch: 2, seq_len: 3 };
        let batch = step.micro_batch(0);
        assert_eq!(batch.ids, [5, 3, 5, 3, 7, 0]);
        assert_eq!(batch.targets, [MASKED_TOKEN, 7, MASKED_TOKEN, 7, MASKED_TOKEN, MASKED_TOKEN]);
        assert_eq!((batch.counted, step.counted()), (2, 2));
    }

    /// Seeds of the first window are as they always were: what was shuffled whole by an earlier version still is.
    #[test]
    fn a_window_is_permuted_by_seed_pass_and_number() {
        let order = |place: (u64, u64)| {
            let mut chunks: Vec<Arc<Chunk>> = (0..50).map(|id| Arc::new(Chunk::plain([id]))).collect();
            permute(&mut chunks, 7, place);
            chunks.iter().map(|chunk| chunk.ids[0]).collect::<Vec<u32>>()
        };
        let orders = [(0, 0), (1, 0), (0, 1), (1, 1)].map(order);
        for (index, one) in orders.iter().enumerate() {
            assert!(orders[..index].iter().all(|other| other != one));
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        }
    }
}
