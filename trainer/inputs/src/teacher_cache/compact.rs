//! The form of a cache of likely tokens.

use std::fmt;

use precast_plan::TopTokens;
use serde::{Deserialize, Serialize};

/// The form of a cache that keeps probabilities of a few tokens in place of hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compact {
    /// Most likely tokens of a position.
    pub keep_logits: u32,
    /// Temperature of their probabilities.
    pub temperature: f32,
    /// Tokens of the student's vocabulary, over which they are.
    pub student_vocab: u32,
}

impl Compact {
    /// Returns the options of `precast cache` that ask for it, behind another option.
    pub fn options(self) -> String {
        let Self { keep_logits, temperature, .. } = self;
        format!(" --keep-logits {keep_logits} --temperature {temperature} --student STUDENT")
    }

    /// Returns true if some tokens are kept, and not all of the vocabulary.
    pub fn is_possible(self) -> bool {
        (1..=TopTokens::most(self.student_vocab)).contains(&self.keep_logits)
    }

    /// Returns it as plans have it.
    pub fn top(self) -> TopTokens {
        TopTokens { vocab: self.student_vocab, keep: self.keep_logits, temperature: self.temperature }
    }
}

impl fmt::Display for Compact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keep_logits, temperature, student_vocab } = self;
        write!(f, "{keep_logits} logits a token of {student_vocab}, at temperature {temperature}")
    }
}
