//! Chunks to micro-batches: which chunk comes when, and the words the device is sent.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use precast_kernels::abi::MASKED_TOKEN;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::places::Filling;
use super::{Chunk, DataError, Packing, Places, Stream, Streams, Summaries, mixture};

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
    order: Order,
    /// Micro-batches that have been looked at, before all others.
    ahead: VecDeque<Vec<Arc<Chunk>>>,
    /// Those that are being filled behind them, one of each teacher.
    begun: Vec<Begun>,
    /// Window of each portion of the data.
    windows: Vec<Window>,
    /// Tokens of each portion that have been given.
    drawn: Vec<u64>,
}

/// A micro-batch that is being filled.
struct Begun {
    rows: Vec<Arc<Chunk>>,
    filling: Filling,
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
    /// Those of each micro-batch.
    micros: Vec<Range<usize>>,
    places: Places,
}

/// One micro-batch, as the plan's inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// Token ids, batch x seq_len places; 0 where padded.
    pub ids: Vec<u32>,
    /// The token after each, or [`MASKED_TOKEN`].
    pub targets: Vec<u32>,
    /// The batch's ids in ascending order, for gradients of the embedding without atomics.
    pub sorted_ids: Vec<u32>,
    /// Where each sorted id came from; ascending within an id.
    pub sorted_positions: Vec<u32>,
    /// Lengths of the sequences that lie end to end in the places, in order. They fill all places: behind the last row
    /// lie sequences of padding, each of at most seq_len.
    pub lengths: Vec<u32>,
    /// The last token of each row, which takes no place and which the one before it predicts; 0 of other sequences.
    pub ends: Vec<u32>,
    /// Targets that are not masked.
    pub counted: u32,
    /// Sequences that the teacher reads, if any is another.
    pub taught: Option<Taught>,
    /// Number of the teacher of all its rows.
    pub teacher: usize,
}

/// Sequences of a micro-batch that the teacher reads in place of the student's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taught {
    /// Token ids, batch x seq_len places; 0 where padded.
    pub ids: Vec<u32>,
    /// Place of the teacher's prediction of each of the student's targets; 0 where that is masked.
    pub places: Vec<u32>,
    /// Lengths of the sequences, as those of the student's.
    pub lengths: Vec<u32>,
}

impl Batches {
    /// The chunks of streams, pass after pass, in an order; those of several portions by their shares of the tokens.
    /// They fill the places of micro-batches as their corpus has it.
    pub fn new(streams: Streams, order: Order) -> Self {
        let (windows, drawn) = (vec![Window::default(); streams.portions.len()], vec![0; streams.portions.len()]);
        let begun = |_| Begun { rows: Vec::new(), filling: Filling::new(streams.corpus.places) };
        let begun = (0..streams.corpus.teachers.len().max(1)).map(begun).collect();
        Self { streams, order, ahead: VecDeque::new(), begun, windows, drawn }
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
        self.look_ahead(micros)?;
        let micros = self.ahead.drain(..micros as usize);
        Ok(Step::of(micros, self.streams.corpus.places))
    }

    /// The same, which stays the next.
    ///
    /// # Errors
    /// [`DataError`] of what is read.
    pub fn peek(&mut self, micros: u32) -> Result<Step, DataError> {
        self.look_ahead(micros)?;
        let micros = self.ahead.iter().take(micros as usize).cloned();
        Ok(Step::of(micros, self.streams.corpus.places))
    }

    /// Reads the next step.
    fn look_ahead(&mut self, micros: u32) -> Result<(), DataError> {
        while self.ahead.len() < micros as usize {
            let micro = self.micro()?;
            self.ahead.push_back(micro);
        }
        Ok(())
    }

    /// Reads rows until the micro-batch of a teacher is full, or the next of its rows does not fit into it any more:
    /// that begins another.
    fn micro(&mut self) -> Result<Vec<Arc<Chunk>>, DataError> {
        let places = self.streams.corpus.places;
        loop {
            if let Some(full) = self.begun.iter_mut().find(|begun| begun.filling.is_full()) {
                full.filling = Filling::new(places);
                return Ok(mem::take(&mut full.rows));
            }
            let row = self.row()?;
            let Begun { rows, filling } = &mut self.begun[row.teacher as usize];
            let is_next = filling.take(places.of_row(&row)).is_some();
            let whole = is_next.then(|| mem::take(rows));
            rows.push(row);
            if let Some(whole) = whole {
                return Ok(whole);
            }
        }
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
    pub fn new(rows: Vec<Arc<Chunk>>, places: Places) -> Self {
        let micros = places.divide(rows.iter().map(|row| &**row));
        Self { rows, micros, places }
    }

    fn of(all: impl Iterator<Item = Vec<Arc<Chunk>>>, places: Places) -> Self {
        let mut step = Self { rows: Vec::new(), micros: Vec::new(), places };
        for mut rows in all {
            let first = step.rows.len();
            step.micros.push(first..first + rows.len());
            step.rows.append(&mut rows);
        }
        step
    }

    /// Micro-batches.
    pub fn micros(&self) -> usize {
        self.micros.len()
    }

    /// Targets of the step that are not masked.
    pub fn counted(&self) -> u64 {
        self.rows.iter().map(|row| row.counted() as u64).sum()
    }

    /// Tokens that predict, each of which takes a place.
    pub fn predicting(&self) -> u64 {
        self.rows.iter().map(|row| row.targets().len() as u64).sum()
    }

    /// Places of all micro-batches.
    pub fn places(&self) -> u64 {
        self.micros() as u64 * self.places.count() as u64
    }

    /// Rows of neighboring micro-batches.
    pub fn rows_of(&self, micros: Range<usize>) -> &[Arc<Chunk>] {
        let of = &self.micros[micros];
        let (start, end) = (of.first().map_or(0, |first| first.start), of.last().map_or(0, |last| last.end));
        &self.rows[start..end]
    }

    /// A micro-batch, laid out: a step may have more of them than there is memory.
    pub fn micro_batch(&self, number: usize) -> MicroBatch {
        MicroBatch::laid_out(self.rows_of(number..number + 1).iter().map(|row| &**row), self.places)
    }
}

impl MicroBatch {
    /// Rows of tokens that are predicted as themselves.
    pub fn new(rows: &[&[u32]], seq_len: usize) -> Self {
        let chunks: Vec<Chunk> = rows.iter().map(|row| Chunk::plain(*row)).collect();
        Self::of(&chunks, (rows.len(), seq_len))
    }

    /// Lays chunks of at most seq_len + 1 tokens out, each in a sequence of its own.
    pub fn of<'c>(chunks: impl IntoIterator<Item = &'c Chunk>, (batch, seq_len): (usize, usize)) -> Self {
        Self::laid_out(chunks, Places::new(batch as u32, seq_len as u32, Packing::None))
    }

    /// Like [`Self::of`], end to end.
    pub fn packed<'c>(chunks: impl IntoIterator<Item = &'c Chunk>, (batch, seq_len): (usize, usize)) -> Self {
        Self::laid_out(chunks, Places::new(batch as u32, seq_len as u32, Packing::Rows))
    }

    /// Divides ids or targets into those of each sequence.
    pub fn sequences<'t>(&self, mut tokens: &'t [u32]) -> Vec<&'t [u32]> {
        let take = |length: &u32| tokens.split_off(..*length as usize).expect("sequences that take all places");
        self.lengths.iter().map(take).collect()
    }

    /// Lays the rows of a micro-batch out as inputs and targets. Places that a row leaves of its sequence are 0 and
    /// masked: attention is causal, so they change no loss that counts. Such sequences fill what is behind the last
    /// row.
    pub fn laid_out<'c>(rows: impl IntoIterator<Item = &'c Chunk>, places: Places) -> Self {
        let (mut ids, mut targets) = (vec![0; places.count()], vec![MASKED_TOKEN; places.count()]);
        let (mut lengths, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
        let rows: Vec<&Chunk> = rows.into_iter().collect();
        let taught = rows.iter().any(|row| row.teacher_prompt.is_some()).then(|| Taught::laid_out(&rows, places));
        let teacher = rows.first().map_or(0, |row| row.teacher as usize);
        for row in rows {
            let start = end;
            end += places.of_sequence(row.targets().len());
            row.lay_out(&mut ids[start..end], &mut targets[start..end]);
            if end > start {
                lengths.push((end - start) as u32);
                ends.push(row.ids.get(end - start).copied().unwrap_or_default());
            }
        }
        let lengths = places.filled(lengths);
        ends.resize(lengths.len(), 0);
        let counted = targets.iter().filter(|target| **target != MASKED_TOKEN).count() as u32;
        let mut sorted_positions: Vec<u32> = (0..ids.len() as u32).collect();
        sorted_positions.sort_by_key(|position| ids[*position as usize]);
        let sorted_ids = sorted_positions.iter().map(|position| ids[*position as usize]).collect();
        Self { ids, targets, sorted_ids, sorted_positions, lengths, ends, counted, taught, teacher }
    }
}

impl Taught {
    fn laid_out(rows: &[&Chunk], places: Places) -> Self {
        let mut all = Self { ids: vec![0; places.count()], places: vec![0; places.count()], lengths: Vec::new() };
        let (mut own_end, mut end) = (0, 0);
        for row in rows {
            let ids: Vec<u32> = row.taught().collect();
            let predicting = ids.len().saturating_sub(1);
            let (own_start, start) = (own_end, end);
            own_end += places.of_sequence(row.targets().len());
            end += places.of_sequence(predicting);
            all.ids[start..start + predicting].copy_from_slice(&ids[..predicting]);
            // Completions end together.
            for (behind, target) in row.targets().iter().rev().enumerate() {
                if *target != MASKED_TOKEN {
                    let own = own_start + row.targets().len() - 1 - behind;
                    all.places[own] = (start + predicting - 1 - behind) as u32;
                }
            }
            all.lengths.extend((end > start).then_some((end - start) as u32));
        }
        all.lengths = places.filled(all.lengths);
        all
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
        assert_eq!((batch.counted, batch.lengths), (4, vec![3, 3]));
    }

    #[test]
    fn labels_are_the_targets_and_masked_ones_are_not_counted() {
        let labels = Some(vec![5, MASKED_TOKEN, 7, MASKED_TOKEN]);
        let masked = Chunk { ids: vec![5, 3, 5, 9], labels, ..Chunk::default() };
        let rows = [masked, Chunk::plain([3, 7])].map(Arc::new).to_vec();
        let step = Step::new(rows, Places::new(2, 3, Packing::None));
        let batch = step.micro_batch(0);
        assert_eq!(batch.ids, [5, 3, 5, 3, 7, 0]);
        assert_eq!(batch.targets, [MASKED_TOKEN, 7, MASKED_TOKEN, 7, MASKED_TOKEN, MASKED_TOKEN]);
        assert_eq!((batch.counted, step.counted()), (2, 2));
    }

    /// Each target that counts is predicted from the token before it and all before that, of either prompt.
    #[test]
    fn a_teacher_predicts_the_targets_of_its_student() {
        let row = |prompt: &[u32], completion: &[u32], teacher: Option<&[u32]>| {
            let labels = prompt.iter().map(|_| MASKED_TOKEN).chain(completion.iter().copied());
            let chunk =
                Chunk { ids: [prompt, completion].concat(), labels: Some(labels.collect()), ..Chunk::default() };
            teacher.map_or(Ok(chunk.clone()), |teacher| chunk.after(teacher.to_vec())).unwrap()
        };
        let rows = [
            row(&[1, 2], &[3, 4, 5], Some(&[6, 7, 8])),
            row(&[9], &[10, 11], None),
            row(&[12, 13, 14], &[15], Some(&[16])),
        ];
        for packing in [Packing::Rows, Packing::None] {
            let batch = MicroBatch::laid_out(&rows, Places::new(3, 6, packing));
            let taught = batch.taught.as_ref().unwrap();
            let sequences = batch.sequences(&taught.ids).len();
            assert_eq!((taught.lengths.iter().sum::<u32>(), sequences > 2), (18, true));
            let counted = batch.targets.iter().zip(0..).filter(|(target, _)| **target != MASKED_TOKEN);
            let reads = counted.map(|(target, own)| {
                let place = taught.places[own] as usize;
                (batch.ids[own], taught.ids[place], *target)
            });
            let expected = [(2, 8, 3), (3, 3, 4), (4, 4, 5), (9, 9, 10), (10, 10, 11), (14, 16, 15)];
            assert_eq!(reads.collect::<Vec<_>>(), expected, "{packing}");
        }
        let same = MicroBatch::laid_out(&rows[1..2], Places::new(1, 6, Packing::Rows));
        assert_eq!(same.taught, None);
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
