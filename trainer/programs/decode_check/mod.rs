//! `precast selftest --model`: proves on a device that decoding has the bits of the forward pass.
//!
//! Sequences of random tokens are computed whole, and their logits kept. Then their prompts fill a pool of keys and values, every other
//! token is decoded, and a kernel compares all its logits. `sequences` says which rows are computed, `checker` is the device.

mod checker;
mod sequences;

use std::fmt;
use std::ops::AddAssign;

use precast_plan::Gemm;
use precast_system::progress::{Progress, Unit};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::base::notes::note;
use crate::device::frozen::Forward;
use crate::options::UsageError;
use crate::programs::failure::Failure;
use crate::run::outcome::RunFault;
pub use checker::DecodeChecker;
pub use sequences::{CheckedRow, CheckedSequence, decoded, prompts, sequences};

/// A request to check decoding under a model.
#[derive(Clone, Debug)]
pub struct DecodeCheck {
    pub forward: Forward,
    /// Sequences at a time.
    pub rows: u32,
    /// Tokens of the longest; if not given, as many as usual and the model takes.
    pub seq_len: Option<u32>,
    /// Decoded tokens to compare, at least.
    pub tokens: u64,
    /// Seed of the sequences.
    pub seed: u64,
}

/// Logits that were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Tokens that were decoded.
    pub tokens: u64,
    /// Logits of these, each compared with that of the forward pass.
    pub compared: u64,
    /// Logits whose bits differ.
    pub differing: u64,
    /// The first token that has one.
    pub first: Option<DifferingToken>,
}

/// A decoded token whose logits differ from those of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DifferingToken {
    /// Number of its sequence, among all that were drawn.
    pub sequence: u64,
    pub position: u32,
    /// Logits of it that differ.
    pub differing: u32,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tokens, compared, differing, .. } = self;
        write!(
            f,
            "{tokens} decoded tokens, {compared} logits compared with those of the forward pass: {differing} differ"
        )
    }
}

impl Compared {
    /// Refuses logits that differ.
    ///
    /// # Errors
    /// [`RunFault`], with the first sequence and position.
    pub fn check(&self) -> Result<(), RunFault> {
        self.first.map_or(Ok(()), |DifferingToken { sequence, position, differing }| {
            Err(RunFault(format!(
                "decoding has other bits than the forward pass: {differing} logits of sequence {sequence} at position {position} \
                 differ, and no token before it does. Check the kernels with precast selftest"
            )))
        })
    }
}

impl AddAssign for Compared {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.compared += other.compared;
        self.differing += other.differing;
        self.first = self.first.or(other.first);
    }
}

/// Compares logits of decoded tokens until there are as many as are asked for, or one differs.
///
/// # Errors
/// [`Failure`]; not where logits differ, which the result says.
pub fn check_decoding(request: &DecodeCheck) -> Result<Compared, Failure> {
    if request.forward.gemm == Gemm::Cublas {
        return Err(UsageError(
            "--gemm cublas: a row of cuBLASLt's GEMMs has other bits where there are other rows beside it, so decoding has not those \
             of the forward pass: leave it out"
                .to_owned(),
        )
        .into());
    }
    let opened = request.forward.read()?;
    let vocab = opened.model.config().vocab;
    let mut checker = DecodeChecker::open(request, &opened)?;
    let slots = checker.plan.slots;
    if request.forward.heading && checker.sealed.device().compute_capability.is_none() {
        note("the simulated GPU executes the host references: their bits are compared, and no machine code's");
    }
    let mut rng = Pcg64Mcg::seed_from_u64(request.seed);
    let mut all = Compared::default();
    let progress = Progress::start("decoding", Unit::Things("tokens"));
    let mut drawn = 0;
    while all.tokens < request.tokens && all.first.is_none() {
        let round = sequences(slots, vocab, &mut rng);
        checker.score(&round)?;
        for rows in prompts(&round, checker.most_rows(), &mut rng) {
            checker.prefill(&rows)?;
        }
        let mut done = all.tokens;
        for rows in decoded(&round) {
            checker.decode(&rows)?;
            done += rows.len() as u64;
            progress.set(done.min(request.tokens), request.tokens);
        }
        all += checker.compared(&round, drawn)?;
        drawn += round.len() as u64;
    }
    Ok(all)
}
