//! Logits that were compared, and what differs.

use std::fmt;
use std::ops::AddAssign;

use serde::Serialize;

use crate::run::outcome::RunFault;

/// Logits that were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Tokens that were decoded.
    pub tokens: u64,
    /// Logits of these, each compared with that of the forward pass; masked columns after the vocabulary are compared,
    /// too.
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
                "decoding has other bits than the forward pass: {differing} logits of sequence {sequence} at \
                position {position} \
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
