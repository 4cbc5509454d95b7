//! Sampling of the next token from logits, the same on every GPU and on the host, bit for bit.
//!
//! With logits `s` of a row and temperature `T > 0` the token is the first kept id up to which `exp(s / T)` sums to
//! more than `u` times the sum over all kept ids: a draw from the softmax. `u` is of Philox4x32-10 by seed, sequence
//! and position. At `T = 0` it is the argmax of `s`; of equal logits that of the smallest id counts as the largest.
//! Kept are the `top_k` largest logits, and of these the fewest whose softmax at `T` adds up to `top_p`. `lse = ln sum
//! exp s` and `log_prob = s - lse` are of the whole row at temperature 1.
//!
//! Sums are of integers, `2^44 exp(s - max)` rounded down, so that no order changes them; exponentials and logarithms
//! are polynomials of fused operations. Sources: Devroye, "Non-Uniform Random Variate Generation", 1986; Salmon et al.,
//! "Parallel random numbers: as easy as 1, 2, 3", 2011; Holtzman et al., "The Curious Case of Neural Text
//! Degeneration", 2020.

mod advance;
mod host;
mod philox;
mod polynomial;
mod score;
mod top;

pub use host::kept;

pub use crate::abi::{Sample, SampleAdvance, SampleScore, SampleTop};
use crate::host::Views;
use crate::{Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance, one_variant, source, variant};

variant! {
    /// A CTA takes a row.
    pub struct Row {
        /// CTAs per multiprocessor, which share its registers.
        blocks: u32,
        threads: u32,
    }
}

impl Build for Sample {
    one_variant!(Row { blocks: 2, threads: 512 });

    fn source(&self, _variant: Row) -> Source {
        source!("sample", "sample.cu", "philox.cuh", "polynomial.cuh", "select.cuh")
    }

    fn geometry(&self, variant: Row, p: &Self::Params) -> Geometry {
        Geometry::linear(p.rows, variant.threads)
    }
}

impl Reference for Sample {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::sample(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // Each way of drawing; rows of no whole vectors, and of more than a CTA has threads.
        [
            (2, 1, 1.0, 0, 1.0),
            (4, 701, 0.0, 0, 1.0),
            (4, 701, 1.0, 0, 1.0),
            (4, 1024, 0.7, 40, 1.0),
            (4, 1024, 1.3, 0, 0.9),
            (4, 701, 1.0, 700, 0.5),
            (3, 1024, 0.1, 3000, 0.01),
            (1, 4360, 2.0, 300, 0.95),
        ]
        .map(|(rows, vocab, temperature, top_k, top_p)| Self::Params {
            rows,
            vocab,
            temperature,
            top_k,
            top_p,
            seed: 0x0123_4567_89ab_cdef,
            ..Default::default()
        })
        .into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        // A row of decoding for each of sixteen tokens of training.
        Self::Params { rows: batch.tokens().div_ceil(16), vocab: Batch::VOCAB, ..self.samples()[2] }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
