//! The likeliest tokens of positions, with log-probabilities that others have computed: columns beside a row's tokens.

use std::collections::HashSet;

/// Natural logarithm of a probability that is 0 in f32: tokens below it are none of the likeliest.
pub const ABSENT: f32 = -100.0;
/// Probabilities of a position sum to this at most, as they are rounded.
const MOST_SUM: f64 = 1.0 + 1e-3;

/// The columns that they stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LikelyForm {
    Lists,
    /// As vLLM's server returns them.
    Vllm,
}

impl LikelyForm {
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Lists => &["top_ids", "top_logprobs"],
            Self::Vllm => &["prompt_logprobs"],
        }
    }
}

/// A token, its natural log-probability, and its place among all tokens by that, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    pub id: i64,
    pub log_prob: f64,
    pub rank: u64,
}

/// Positions of a row as its columns have them.
pub(super) enum Listed {
    Lists { ids: Vec<Option<Vec<i64>>>, log_probs: Vec<Option<Vec<f64>>> },
    Vllm(Vec<Option<Vec<Ranked>>>),
}

/// Tokens of a position and their log-probabilities; none where nobody has computed them.
pub(super) type LikelyTokens = Option<Vec<(u32, f32)>>;

/// Why they cannot be used.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(super) enum LikelyError {
    #[error(
        "{tokens} tokens and {positions} positions of {column}: give each token one, null where nothing is known; \
         `precast data` prints a row's tokens"
    )]
    Positions { tokens: usize, column: &'static str, positions: usize },
    #[error("{ids} positions of top_ids and {log_probs} of top_logprobs: give each token one of both")]
    Columns { ids: usize, log_probs: usize },
    #[error("{ids} top_ids and {log_probs} top_logprobs at position {position}: give each id one")]
    Lengths { position: usize, ids: usize, log_probs: usize },
    #[error(
        "id {id} at position {position}, and the student's vocabulary is 0 to {last}: have them computed by a model \
         with its tokenizer"
    )]
    Beyond { position: usize, id: i64, last: u32 },
    #[error("id {id} twice at position {position}: give each token once")]
    Twice { position: usize, id: u32 },
    #[error(
        "a log-probability of {log_prob} at position {position}: give natural logarithms of probabilities, at most 0"
    )]
    Log { position: usize, log_prob: f64 },
    #[error(
        "probabilities at position {position} sum to {sum:.4}: give natural logarithms of softmax(logits / temperature)"
    )]
    Sum { position: usize, sum: f64 },
    #[error("rank 0 of id {id} at position {position}: ranks begin at 1, give that to the likeliest token")]
    Rank { position: usize, id: i64 },
    #[error("the tokens of {first}, and other log-probabilities: leave one of both rows out")]
    OfEqualRow { first: String },
}

impl Listed {
    /// Returns the tokens of each position of a row of so many tokens, as they stand.
    pub fn positions(self, tokens: usize, vocab: u32) -> Result<Vec<LikelyTokens>, LikelyError> {
        let (column, all) = match self {
            Self::Lists { ids, log_probs } if ids.len() != log_probs.len() => {
                return Err(LikelyError::Columns { ids: ids.len(), log_probs: log_probs.len() });
            }
            Self::Lists { ids, log_probs } => {
                let both = ids.into_iter().zip(log_probs).enumerate();
                ("top_ids", both.map(|(position, both)| pairs(position, both)).collect::<Result<Vec<_>, _>>()?)
            }
            Self::Vllm(all) => {
                let of_position = |(position, one)| Option::map_or(one, Ok(Vec::new()), |one| likeliest(position, one));
                ("prompt_logprobs", all.into_iter().enumerate().map(of_position).collect::<Result<_, _>>()?)
            }
        };
        if all.len() != tokens {
            return Err(LikelyError::Positions { tokens, column, positions: all.len() });
        }
        all.into_iter().enumerate().map(|(position, one)| checked(position, one, vocab)).collect()
    }
}

/// Pairs ids with their log-probabilities.
fn pairs(
    position: usize,
    (ids, log_probs): (Option<Vec<i64>>, Option<Vec<f64>>),
) -> Result<Vec<(i64, f64)>, LikelyError> {
    let (ids, log_probs) = (ids.unwrap_or_default(), log_probs.unwrap_or_default());
    match ids.len() == log_probs.len() {
        true => Ok(ids.into_iter().zip(log_probs).collect()),
        false => Err(LikelyError::Lengths { position, ids: ids.len(), log_probs: log_probs.len() }),
    }
}

/// Returns the tokens of ranks 1, 2 and so on. vLLM adds the row's own token, whose rank may be any.
fn likeliest(position: usize, mut all: Vec<Ranked>) -> Result<Vec<(i64, f64)>, LikelyError> {
    all.sort_by_key(|one| one.rank);
    match all.first() {
        Some(Ranked { id, rank: 0, .. }) => Err(LikelyError::Rank { position, id: *id }),
        _ => {
            let follow = (1..).zip(all).take_while(|(rank, one)| one.rank == *rank);
            Ok(follow.map(|(_, one)| (one.id, one.log_prob)).collect())
        }
    }
}

fn checked(position: usize, all: Vec<(i64, f64)>, vocab: u32) -> Result<LikelyTokens, LikelyError> {
    let (mut seen, mut sum, mut likely) = (HashSet::new(), 0.0, Vec::with_capacity(all.len()));
    for (id, log_prob) in all {
        let own = u32::try_from(id).ok().filter(|own| *own < vocab);
        let own = own.ok_or(LikelyError::Beyond { position, id, last: vocab - 1 })?;
        if !seen.insert(own) {
            return Err(LikelyError::Twice { position, id: own });
        }
        if log_prob.is_nan() || log_prob > 0.0 {
            return Err(LikelyError::Log { position, log_prob });
        }
        sum += log_prob.exp();
        let log_prob = log_prob as f32;
        likely.extend((log_prob >= ABSENT).then_some((own, log_prob)));
    }
    if sum > MOST_SUM {
        return Err(LikelyError::Sum { position, sum });
    }
    Ok((!likely.is_empty()).then_some(likely))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(ids: &[&[i64]], log_probs: &[&[f64]]) -> Result<Vec<LikelyTokens>, LikelyError> {
        let ids: Vec<_> = ids.iter().map(|one| Some(one.to_vec())).collect();
        let log_probs = log_probs.iter().map(|one| Some(one.to_vec())).collect();
        Listed::Lists { log_probs, ids }.positions(2, 10)
    }

    #[test]
    fn a_position_without_a_token_that_is_likely_is_unknown() {
        let read = lists(&[&[], &[3, 0]], &[&[], &[-0.5, f64::NEG_INFINITY]]).unwrap();
        assert_eq!(read, [None, Some(vec![(3, -0.5)])]);
        let read = Listed::Lists { ids: vec![None, Some(vec![9])], log_probs: vec![None, Some(vec![-9999.0])] };
        assert_eq!(read.positions(2, 10), Ok(vec![None, None]));
    }

    #[test]
    fn what_is_wrong_with_a_position_is_named() {
        let one = |id, log_prob| lists(&[&[], &[4, id]], &[&[], &[-1.0, log_prob]]);
        assert_eq!(one(10, -1.0), Err(LikelyError::Beyond { position: 1, id: 10, last: 9 }));
        assert_eq!(one(-1, -1.0), Err(LikelyError::Beyond { position: 1, id: -1, last: 9 }));
        assert_eq!(one(4, -1.0), Err(LikelyError::Twice { position: 1, id: 4 }));
        assert_eq!(one(5, 0.1), Err(LikelyError::Log { position: 1, log_prob: 0.1 }));
        assert!(matches!(one(5, f64::NAN), Err(LikelyError::Log { .. })));
        // What is left of 1, and a thousandth more.
        let rest = |more: f64| (1.0 - (-1.0_f64).exp() + more).ln();
        assert!(one(5, rest(0.9e-3)).is_ok());
        assert!(matches!(one(5, rest(1.1e-3)), Err(LikelyError::Sum { position: 1, .. })));
        assert_eq!(lists(&[&[]], &[&[], &[]]), Err(LikelyError::Columns { ids: 1, log_probs: 2 }));
        assert_eq!(lists(&[&[], &[1]], &[&[], &[]]), Err(LikelyError::Lengths { position: 1, ids: 1, log_probs: 0 }));
        let positions = LikelyError::Positions { tokens: 2, column: "top_ids", positions: 1 };
        assert_eq!(lists(&[&[]], &[&[]]), Err(positions));
    }

    /// vLLM adds the token that stands there, which may be the next by rank, or any.
    #[test]
    fn a_token_whose_rank_does_not_follow_is_left_out() {
        let of = |ranks: &[u64]| {
            let tokens = ranks.iter().map(|rank| Ranked { id: *rank as i64, log_prob: -2.0, rank: *rank });
            Listed::Vllm(vec![Some(tokens.collect())]).positions(1, 10).map(|mut all| all.remove(0))
        };
        let ids = |ranks: &[u64]| of(ranks).unwrap().map(|likely| likely.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        assert_eq!(ids(&[9, 2, 1]), Some(vec![1, 2]));
        assert_eq!(ids(&[3, 1, 2]), Some(vec![1, 2, 3]));
        assert_eq!(ids(&[7]), None);
        assert_eq!(of(&[2, 0, 1]), Err(LikelyError::Rank { position: 0, id: 0 }));
    }
}
