//! Quality of a model's predictions of a text, and the demands on it.

use std::path::Path;

use clap::Args;
use precast_fatbins::Digest;
use serde::Serialize;

use crate::inputs::checkpoint::CheckpointError;
use crate::options::groups::values::above_zero;
use crate::run::outcome::RunFault;

/// Quality of a model's predictions of a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Mean negative log likelihood of a token, nats.
    pub nll: f64,
    /// `e^nll`.
    pub perplexity: f64,
    /// The nll of guessing among all tokens alike, `ln(vocab)`, nats.
    pub uniform_nll: f64,
    /// Tokens that were predicted.
    pub tokens: u64,
    /// Digest of the text as the model reads it: scores of the same ids in the same contexts compare.
    #[serde(skip)]
    pub ids: Digest,
}

/// Says that the arithmetic broke down.
fn not_finite(model: &Path, nll: f64) -> RunFault {
    let model = model.display();
    RunFault(format!("{model}: nll is {nll}, not a number of nats: the model is broken, or its activations overflow"))
}

/// Demands on a score.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Demands {
    /// Allow a model that is no better than guessing uniformly
    #[arg(long)]
    pub untrained: bool,
    /// Fail if the perplexity is above this
    #[arg(long, value_parser = above_zero, value_name = "X")]
    pub max_perplexity: Option<f64>,
}

impl Score {
    /// The score of a text by the sum of its negative log likelihoods, nats.
    pub fn new(total: f64, tokens: u64, vocab: u32, ids: Digest) -> Self {
        let nll = total / tokens as f64;
        Self { nll, perplexity: nll.exp(), uniform_nll: f64::from(vocab).ln(), tokens, ids }
    }

    /// Refuses a score that is not a number, not better than guessing, or above what is allowed.
    ///
    /// # Errors
    /// [`RunFault`].
    pub fn check(&self, model: &Path, demands: Demands) -> Result<(), RunFault> {
        let Self { nll, perplexity, uniform_nll, .. } = *self;
        if !nll.is_finite() {
            return Err(not_finite(model, nll));
        }
        let model = model.display();
        if nll >= uniform_nll && !demands.untrained {
            return Err(RunFault(format!(
                "{model}: nll {nll:.4} nats a token is no better than the {uniform_nll:.4} of guessing uniformly: \
                the model is broken, \
                 untrained, or of another language (--untrained allows it)"
            )));
        }
        match demands.max_perplexity {
            Some(most) if perplexity > most => {
                Err(RunFault(format!("{model}: perplexity {perplexity:.4} is above --max-perplexity {most}")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses scores of texts that two models read differently.
    ///
    /// # Errors
    /// [`CheckpointError::Wrong`].
    pub fn check_alike(&self, model: &Path, other: &Self, baseline: &Path) -> Result<(), CheckpointError> {
        if self.ids == other.ids {
            return Ok(());
        }
        Err(CheckpointError::Wrong(format!(
            "{} and {} read the text as different tokens, so their scores per token cannot be compared: use models \
            with \
             the same tokenizer, and a --seq-len that both support",
            model.display(),
            baseline.display()
        )))
    }

    /// Fails unless the score is below the baseline's, which is of the same tokens.
    ///
    /// # Errors
    /// [`RunFault`].
    pub fn check_below(&self, model: &Path, other: &Self, baseline: &Path) -> Result<(), RunFault> {
        let (name, other_name) = (model.display(), baseline.display());
        if !other.nll.is_finite() {
            return Err(not_finite(baseline, other.nll));
        }
        if self.nll < other.nll {
            return Ok(());
        }
        Err(RunFault(format!(
            "{name}: nll {:.6} nats a token is not below the {:.6} of {other_name}",
            self.nll, other.nll
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(nll: f64) -> Score {
        Score::new(nll * 10.0, 10, 100, Digest::of(b"ids"))
    }

    /// Of equal numbers neither is above or below the other.
    #[test]
    fn a_score_may_be_what_is_allowed_and_is_below_numbers_alone() {
        let demands = Demands { untrained: false, max_perplexity: Some(2f64.exp()) };
        assert_eq!(score(2.0).check(Path::new("model"), demands), Ok(()));
        let below = |other: f64| score(2.0).check_below(Path::new("a"), &score(other), Path::new("b"));
        assert_eq!([below(2.5), below(f64::NAN)], [Ok(()), Err(not_finite(Path::new("b"), f64::NAN))]);
        let message = below(2.0).unwrap_err().to_string();
        assert_eq!(message, "a: nll 2.000000 nats a token is not below the 2.000000 of b");
    }
}
