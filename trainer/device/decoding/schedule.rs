//! Sequences to slots: which rows are computed next.
//!
//! A sequence takes a slot from its prompt to its end. Rows are filled again only where the device has been read, every
//! [`STEPS`] steps; what a row computes does not depend on its neighbors, so neither does any token depend on the
//! number of slots.

use std::collections::VecDeque;
use std::sync::Arc;

use precast_kernels::abi::IDLE_SLOT;
use precast_plan::decoding::Prefill;

/// Steps between looks at the device.
pub(crate) const STEPS: u32 = 32;

/// A completion to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// Its number among all: the order of results, and of the random numbers that draw its tokens.
    pub number: u64,
    pub prompt: Arc<[u32]>,
    /// Tokens at most, with the prompt.
    pub most: u32,
}

impl Sequence {
    /// Returns the rows of its prompt but the last token's, which is the first that draws one.
    pub fn prompt_rows(&self, slot: u32) -> impl Iterator<Item = Row> {
        let Self { number, prompt, most } = self;
        let but_last = &prompt[..prompt.len() - 1];
        (0..).zip(but_last).map(move |(position, id)| Row { slot, position, id: *id, sequence: *number, end: *most })
    }
}

/// A row of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub slot: u32,
    pub position: u32,
    pub id: u32,
    pub sequence: u64,
    /// Position at which the sequence ends.
    pub end: u32,
}

impl Row {
    /// Computes nothing.
    pub const IDLE: Self = Self { slot: IDLE_SLOT, position: 0, id: 0, sequence: 0, end: 0 };
}

/// Tokens that were drawn, and their scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drawn {
    pub ids: Vec<u32>,
    /// Log-probability of each, at temperature 1, nats.
    pub log_probs: Vec<f32>,
    /// Log-sum-exp of the logits that each was drawn from, nats.
    pub lses: Vec<f32>,
}

/// A device that computes the rows of a schedule.
pub(crate) trait Decoder {
    type Error;

    /// Stores keys and values of tokens of prompts.
    fn prefill(&mut self, rows: &[Row]) -> Result<(), Self::Error>;

    /// Computes these rows, and those that follow from them, `steps` times. Returns each row's length so far, and
    /// whether it goes on.
    fn decode(&mut self, rows: &[Row], steps: u32) -> Result<Vec<RowProgress>, Self::Error>;

    /// Reads what was drawn into a slot from `first` to before `end`.
    fn read(&mut self, slot: u32, first: u32, end: u32) -> Result<Drawn, Self::Error>;
}

/// State of a row after some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowProgress {
    /// Tokens of its sequence.
    pub length: u32,
    /// The last of them.
    pub id: u32,
    pub ended: bool,
}

/// A sequence in its slot.
struct Active {
    sequence: Sequence,
    slot: u32,
    length: u32,
    last: u32,
}

impl Active {
    fn row(&self) -> Row {
        let Self { sequence, slot, length, last } = self;
        Row { slot: *slot, position: length - 1, id: *last, sequence: sequence.number, end: sequence.most }
    }
}

/// Writes all sequences; `done` is given each with its completion, in their order.
///
/// # Errors
/// Those of the decoder, and of `done`.
pub(crate) fn run<D: Decoder, E: From<D::Error>>(
    decoder: &mut D,
    (slots, prefill): (u32, Prefill),
    sequences: impl IntoIterator<Item = Sequence>,
    mut done: impl FnMut(Sequence, Drawn) -> Result<(), E>,
) -> Result<(), E> {
    let mut waiting = sequences.into_iter();
    let mut free: Vec<u32> = (0..slots).rev().collect();
    let mut active: Vec<Active> = Vec::new();
    let mut ended = InOrder::default();
    loop {
        let mut prompts = Vec::new();
        while let Some(slot) = free.pop() {
            let Some(sequence) = waiting.next() else {
                free.push(slot);
                break;
            };
            ended.expect(sequence.number);
            let (length, last) = (sequence.prompt.len() as u32, sequence.prompt[sequence.prompt.len() - 1]);
            prompts.extend(sequence.prompt_rows(slot));
            active.push(Active { sequence, slot, length, last });
        }
        for rows in prefill.launches(&prompts, |row| row.position) {
            decoder.prefill(rows)?;
        }
        let Some(left) = active.iter().map(|one| one.sequence.most - one.length).max() else { return Ok(()) };
        let rows: Vec<Row> = active.iter().map(Active::row).collect();
        let progress = decoder.decode(&rows, left.min(STEPS))?;
        let before = std::mem::take(&mut active);
        for (mut one, RowProgress { length, id, ended: has_ended }) in before.into_iter().zip(progress) {
            (one.length, one.last) = (length, id);
            if !has_ended {
                active.push(one);
                continue;
            }
            let drawn = decoder.read(one.slot, one.sequence.prompt.len() as u32, length)?;
            free.push(one.slot);
            ended.put(one.sequence, drawn);
        }
        while let Some((sequence, drawn)) = ended.next() {
            done(sequence, drawn)?;
        }
    }
}

/// A sequence with its completion.
type Completed = (Sequence, Drawn);

/// Completions that are given in the order of their sequences.
#[derive(Default)]
struct InOrder {
    /// Numbers that were begun, with the completions that have ended.
    begun: VecDeque<(u64, Option<Completed>)>,
}

impl InOrder {
    fn expect(&mut self, number: u64) {
        self.begun.push_back((number, None));
    }

    fn put(&mut self, sequence: Sequence, drawn: Drawn) {
        let place = self.begun.iter_mut().find(|(number, _)| *number == sequence.number);
        place.expect("it was begun").1 = Some((sequence, drawn));
    }

    /// The first that was begun and not given yet, if it has ended.
    fn next(&mut self) -> Option<Completed> {
        self.begun.front()?.1.as_ref()?;
        self.begun.pop_front()?.1
    }
}
