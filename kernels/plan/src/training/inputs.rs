//! The inputs that the host sends before each micro-batch.

use crate::category;
use precast_kernels::{Dtype, abi::micro_scalars};

use crate::sequences::{Sequences, Shape};
use precast_core::plan::{Builder, Tensor};

/// Words of a scalar block, padded to a cache line.
const BLOCK_WORDS: u64 = 16;

/// One buffer of words that the host sends before each micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroInputs {
    /// The whole buffer, sent in one copy.
    pub all: Tensor,
    pub ids: Tensor,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
    /// Token ids, ascending.
    pub sorted_ids: Tensor,
    /// Original position of each sorted id.
    pub sorted_positions: Tensor,
    /// Places of the sequences.
    pub sequences: Sequences,
    /// Sequences that the teacher reads, if they are others.
    pub taught: Option<TaughtInputs>,
    /// Place of each token in the teacher's pass over several micro-batches, if there is one.
    pub in_pass: Option<Tensor>,
    /// `micro_scalars`.
    pub micro: Tensor,
    /// Alpha and beta of weight gradients: 1, and 0 in the first micro-batch of a step or 1 in later ones, f32.
    pub factors: Tensor,
}

/// Sequences that a teacher reads in place of the student's, in as many places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaughtInputs {
    pub ids: Tensor,
    /// Place of the teacher's prediction for each of the student's positions; any where the target is masked.
    pub places: Tensor,
    pub sequences: Sequences,
}

/// Inputs of a teacher that computes several micro-batches at a time, and what it leaves of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeacherPass {
    /// Micro-batches of a pass.
    pub micros: u32,
    /// The whole of the inputs, sent in one copy.
    pub all: Tensor,
    pub ids: Tensor,
    pub sequences: Sequences,
    /// Residual stream after the last block, `[tokens, hidden]`.
    pub(super) stream: Tensor,
}

impl TeacherPass {
    /// Declares a pass over so many micro-batches of a shape.
    pub(super) fn declare(b: &mut Builder, shape: Shape, micros: u32, (hidden, dtype): (u32, Dtype)) -> Self {
        let Shape { tokens, sequences, seq_len } = shape;
        let whole = Shape { tokens: tokens * micros, sequences: sequences * micros, seq_len };
        let column = u64::from(whole.tokens).next_multiple_of(BLOCK_WORDS);
        let words = Sequences::words_of(whole);
        let all = b.persistent("teacher.pass.inputs", category::INPUTS, Dtype::U32, column + words);
        let elems = u64::from(whole.tokens) * u64::from(hidden);
        Self {
            micros,
            all,
            ids: all.slice(0, whole.tokens.into()),
            sequences: Sequences::within(all.slice(column, words), whole),
            stream: b.persistent("teacher.pass.stream", category::INPUTS, dtype, elems),
        }
    }
}

impl MicroInputs {
    pub(super) fn new(b: &mut Builder, shape: Shape, (own_prompts, has_pass): (bool, bool)) -> Self {
        let tokens = u64::from(shape.tokens);
        let (column, words) = (tokens.next_multiple_of(BLOCK_WORDS), Sequences::words_of(shape));
        let of_sequences = words.next_multiple_of(BLOCK_WORDS);
        let taught = if own_prompts { 2 * column + of_sequences } else { 0 };
        let in_pass = 4 * column + of_sequences + taught;
        let scalars = in_pass + if has_pass { column } else { 0 };
        let all = b.persistent("inputs", category::INPUTS, Dtype::U32, scalars + BLOCK_WORDS);
        let part = |index: u64| all.slice(index * column, tokens);
        let sequences = |start| Sequences::within(all.slice(start, words), shape);
        let behind = 4 * column + of_sequences;
        Self {
            all,
            ids: part(0),
            targets: part(1),
            sorted_ids: part(2),
            sorted_positions: part(3),
            sequences: sequences(4 * column),
            taught: own_prompts.then(|| TaughtInputs {
                ids: all.slice(behind, tokens),
                places: all.slice(behind + column, tokens),
                sequences: sequences(behind + 2 * column),
            }),
            in_pass: has_pass.then(|| all.slice(in_pass, tokens)),
            micro: all.slice(scalars, size_of::<micro_scalars>() as u64 / 4),
            factors: all.slice(scalars + BLOCK_WORDS / 2, 2),
        }
    }
}
