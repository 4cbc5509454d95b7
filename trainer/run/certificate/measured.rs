//! Distance of a model from the exact one, on some tokens.

use std::fmt;

use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::TokenComparison;
use serde::{Deserialize, Serialize};

use crate::options::MostKl;
use crate::run::outcome::RunFault;

/// Measurements on the tokens that count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Mean KL of the exact model's predictions to the other's, nats a token.
    pub kl_mean: f64,
    /// The largest of a token.
    pub kl_max: f64,
    /// Share of tokens of which both choose the same first.
    pub agreement: f64,
    /// Perplexity of the model.
    pub perplexity: f64,
    /// Perplexity of the exact one.
    pub exact_perplexity: f64,
    pub tokens: u64,
}

impl Measured {
    /// Refuses what is no number, or too far.
    ///
    /// # Errors
    /// [`RunFault`].
    pub fn check(self, most: MostKl) -> Result<Self, RunFault> {
        if !self.is_finite() {
            return Err(RunFault(format!(
                "the int8 teacher's predictions are no numbers on {} tokens: its activations overflow, or the exact \
                model's do. \
                 Use --teacher-format bf16 or stored",
                self.tokens
            )));
        }
        match most {
            MostKl::Most(most) if self.kl_mean > most => Err(RunFault(format!(
                "{self}: more than --max-teacher-kl {most} allows. Use --teacher-format bf16 or stored, which are \
                exact; or allow it \
                 with --max-teacher-kl"
            ))),
            MostKl::Most(_) | MostKl::None => Ok(self),
        }
    }
}

impl Measured {
    /// True if all of it are numbers, of a token at least.
    pub fn is_finite(&self) -> bool {
        let Self { kl_mean, kl_max, agreement, perplexity, exact_perplexity, tokens } = *self;
        [kl_mean, kl_max, agreement, perplexity, exact_perplexity].into_iter().all(f64::is_finite) && tokens > 0
    }

    /// Why no measurement comes to this.
    pub fn fault(&self) -> Option<String> {
        let Self { kl_mean, kl_max, agreement, perplexity, exact_perplexity, tokens } = *self;
        let wrong = [
            // With the same predictions it is zero but for rounding.
            ("kl_mean", kl_mean, kl_mean >= -ROUNDING && kl_mean <= kl_max, "from 0 to kl_max"),
            ("agreement", agreement, (0.0..=1.0).contains(&agreement), "from 0 to 1"),
            ("perplexity", perplexity, perplexity >= 1.0 - ROUNDING, "at least 1"),
            ("exact_perplexity", exact_perplexity, exact_perplexity >= 1.0 - ROUNDING, "at least 1"),
            ("tokens", tokens as f64, tokens > 0, "at least 1"),
        ];
        let wrong = wrong.into_iter().find(|(.., is_right, _)| !is_right);
        wrong.map(|(name, found, _, expected)| format!("{name} is {found}, expected {expected}"))
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kl_mean, kl_max, agreement, perplexity, exact_perplexity, tokens } = self;
        write!(
            f,
            "KL {kl_mean:.5} nats a token from the exact model, at most {kl_max:.4}; the same first choice of {:.2} \
            % of {tokens} \
             tokens; perplexity {perplexity:.4}, of the exact model {exact_perplexity:.4}",
            100.0 * agreement
        )
    }
}

/// Distance below its bound at which an fp32 sum may end.
const ROUNDING: f64 = 1e-4;

/// Adds up what is measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    kl: f64,
    kl_max: f64,
    agrees: f64,
    nll: f64,
    exact_nll: f64,
    tokens: u64,
}

impl Tally {
    /// Adds the tokens that count.
    pub fn add(&mut self, targets: &[u32], columns: &TokenComparison<Vec<f32>>) {
        for (index, _) in targets.iter().enumerate().filter(|(_, target)| **target != MASKED_TOKEN) {
            let of = |column: &[f32]| f64::from(column[index]);
            let kl = of(&columns.kl);
            self.kl += kl;
            self.kl_max = self.kl_max.max(kl);
            self.agrees += of(&columns.agrees);
            self.nll += of(&columns.nll);
            self.exact_nll += of(&columns.reference_nll);
            self.tokens += 1;
        }
    }

    /// Returns the measurements: numbers that are not finite where there are no tokens.
    pub fn measured(self) -> Measured {
        let mean = |sum: f64| sum / self.tokens as f64;
        Measured {
            kl_mean: mean(self.kl),
            kl_max: self.kl_max,
            agreement: mean(self.agrees),
            perplexity: mean(self.nll).exp(),
            exact_perplexity: mean(self.exact_nll).exp(),
            tokens: self.tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::max_kl::DEFAULT;

    fn columns(kl: [f32; 3]) -> TokenComparison<Vec<f32>> {
        let columns =
            TokenComparison { kl, agrees: [1.0, 0.0, 0.0], reference_nll: [1.0, 0.0, 2.0], nll: [1.5, 0.0, 2.5] };
        columns.map(|column| column.to_vec())
    }

    fn measured(kl: [f32; 3]) -> Measured {
        let mut tally = Tally::default();
        tally.add(&[7, MASKED_TOKEN, 9], &columns(kl));
        tally.measured()
    }

    #[test]
    fn means_are_of_the_tokens_that_count() {
        let found = measured([0.75, 9.0, 0.25]);
        assert_eq!((found.kl_mean, found.kl_max, found.agreement, found.tokens), (0.5, 0.75, 0.5, 2));
        assert_eq!((found.exact_perplexity, found.perplexity), (1.5f64.exp(), 2f64.exp()));
    }

    #[test]
    fn what_no_measurement_comes_to_is_named() {
        let right = measured([0.25, 0.0, 0.75]);
        assert_eq!(right.fault(), None);
        for (wrong, name) in [
            (Measured { kl_mean: -5.0, ..right }, "kl_mean is -5"),
            (Measured { kl_mean: 0.8, ..right }, "kl_mean is 0.8"),
            (Measured { agreement: 7.0, ..right }, "agreement is 7"),
            (Measured { agreement: -0.1, ..right }, "agreement is -0.1"),
            (Measured { perplexity: 0.5, ..right }, "perplexity is 0.5"),
            (Measured { exact_perplexity: f64::NAN, ..right }, "exact_perplexity is NaN"),
            (Measured { tokens: 0, ..right }, "tokens is 0"),
        ] {
            let fault = wrong.fault().unwrap();
            assert!(fault.starts_with(name), "{fault}");
        }
    }

    #[test]
    fn what_is_too_far_or_no_number_is_refused() {
        let near = measured([0.01, 0.0, 0.03]);
        assert_eq!(near.check(DEFAULT).unwrap(), near, "the mean is what may be allowed");
        let far = measured([0.02, 0.0, 0.04]);
        assert!(far.check(MostKl::None).is_ok() && far.check(MostKl::Most(0.04)).is_ok());
        let broken = measured([f32::NAN, 0.0, 0.0]);
        for (measured, tokens) in [(broken, 2), (Tally::default().measured(), 0)] {
            let said = measured.check(MostKl::None).unwrap_err().to_string();
            assert!(said.contains(&format!("are no numbers on {tokens} tokens")), "{said}");
        }
        let said = far.check(DEFAULT).unwrap_err().to_string();
        assert!(
            said.starts_with("KL 0.03000 nats a token from the exact model, at most 0.0400; the same first choice"),
            "{said}"
        );
        assert!(said.contains("of 50.00 % of 2 tokens") && said.contains("--max-teacher-kl 0.02 allows"), "{said}");
    }
}
