//! Predictions of a teacher: its logits, or the probabilities of a few tokens.

use precast_core::plan::Tensor;
use precast_kernels::abi::MOST_KEPT;

use crate::config::ModelConfig;
use crate::recipe::PlanError;

/// The tokens of which a compact cache keeps the teacher's probabilities: the most likely ones of each position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopTokens {
    /// Tokens that the student chooses among: logits of others are not computed.
    pub vocab: u32,
    /// Tokens of a position.
    pub keep: u32,
    /// Temperature of the probabilities.
    pub temperature: f32,
}

impl TopTokens {
    /// Returns the most tokens that are kept of a vocabulary: at least one is left to the rest.
    pub fn most(vocab: u32) -> u32 {
        MOST_KEPT.min(vocab.saturating_sub(1))
    }

    /// Refuses more tokens than are kept, and a vocabulary of which all or more would be.
    ///
    /// # Errors
    /// [`PlanError::Keep`] and [`PlanError::TeacherNarrower`].
    pub fn check(self, teacher: &ModelConfig) -> Result<(), PlanError> {
        let Self { vocab, keep, .. } = self;
        if teacher.vocab < vocab {
            return Err(PlanError::TeacherNarrower { teacher: teacher.vocab, student: vocab });
        }
        check_keep(keep, vocab)
    }
}

pub(crate) fn check_keep(keep: u32, vocab: u32) -> Result<(), PlanError> {
    let most = TopTokens::most(vocab);
    if (1..=most).contains(&keep) { Ok(()) } else { Err(PlanError::Keep { keep, most }) }
}

/// Tokens with their teacher probabilities, and the combined probability of the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownTokens {
    /// `[tokens, keep]` u32.
    pub ids: Tensor,
    /// `[tokens, keep + 1]` f32, nats.
    pub log_probs: Tensor,
    /// Tokens of a position.
    pub keep: u32,
}

/// Predictions of a teacher for a chunk of tokens.
#[derive(Clone, Copy)]
pub(crate) enum Predictions {
    /// Logits, `[tokens, vocab]`.
    Logits(Tensor),
    Known(KnownTokens),
}
