//! The form of a cache of likely tokens.

use std::fmt;

use precast_kernels::abi::NO_TOKEN;
use precast_plan::TopTokens;
use serde::{Deserialize, Serialize};

use crate::data::ABSENT;

/// The rest has this probability at least, where rounded ones sum to 1 or more: its logarithm is a number.
const LEAST_REST: f64 = 1.0 / (1 << 24) as f64;

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

    /// Returns the row of a position of which others know these tokens, with their natural log-probabilities: the most
    /// likely are kept. Behind fewer comes no token.
    pub fn row(self, mut known: Vec<(u32, f32)>) -> Vec<u8> {
        let keep = self.keep_logits as usize;
        known.sort_by(|(one, log), (other, of_other)| of_other.total_cmp(log).then(one.cmp(other)));
        known.truncate(keep);
        let sum: f64 = known.iter().map(|(_, log_prob)| f64::from(*log_prob).exp()).sum();
        let rest = (1.0 - sum).max(LEAST_REST).ln() as f32;
        known.resize(keep, (NO_TOKEN, ABSENT));
        let ids = known.iter().flat_map(|(id, _)| id.to_le_bytes());
        let log_probs = known.iter().map(|(_, log_prob)| *log_prob).chain([rest]).flat_map(f32::to_le_bytes);
        ids.chain(log_probs).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(keep_logits: u32, known: &[(u32, f32)]) -> (Vec<u32>, Vec<f32>) {
        let row = Compact { keep_logits, temperature: 1.0, student_vocab: 6 }.row(known.to_vec());
        let words: Vec<u32> = row.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (ids, log_probs) = words.split_at(keep_logits as usize);
        (ids.to_vec(), log_probs.iter().map(|bits| f32::from_bits(*bits)).collect())
    }

    #[test]
    fn the_most_likely_tokens_are_kept_and_all_others_are_the_rest() {
        let [half, fifth] = [0.5_f32, 0.2].map(f32::ln);
        let (ids, log_probs) = row(2, &[(4, fifth), (1, half), (0, fifth)]);
        assert_eq!((ids, &log_probs[..2]), (vec![1, 0], &[half, fifth][..]));
        assert!((log_probs[2] - 0.3_f32.ln()).abs() < 1e-6, "{log_probs:?}");
        // Also where those that are not kept were all that was left.
        let (_, log_probs) = row(1, &[(4, half), (1, half)]);
        assert_eq!(log_probs, [half, 0.5_f64.ln() as f32]);
    }

    #[test]
    fn behind_fewer_tokens_comes_none() {
        let (ids, log_probs) = row(4, &[(5, -0.1), (2, -3.0)]);
        assert_eq!((ids, &log_probs[..4]), (vec![5, 2, NO_TOKEN, NO_TOKEN], &[-0.1, -3.0, ABSENT, ABSENT][..]));
        assert_eq!(log_probs[4], row(2, &[(5, -0.1), (2, -3.0)]).1[2]);
        assert_eq!(ABSENT.exp().max(f32::MIN_POSITIVE), f32::MIN_POSITIVE);
    }

    #[test]
    fn a_rest_of_nothing_has_a_logarithm() {
        for log_prob in [0.0, -0.0] {
            assert_eq!(row(1, &[(3, log_prob)]).1, [log_prob, LEAST_REST.ln() as f32]);
        }
        assert!(row(2, &[(3, -0.5), (1, -0.5)]).1[2] == LEAST_REST.ln() as f32);
    }
}
