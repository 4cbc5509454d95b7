use rayon::prelude::*;

use super::philox::random;
use super::polynomial::{ln, weight_of};
use crate::abi::{NO_TOKEN, sample_params};
use crate::host::{Views, vectorized};

/// Weight of one, to which sums of weights are scaled back.
const UNIT: f32 = 1.0 / (1u64 << 44) as f32;

/// Maps a finite float to an integer that ascends with it. Both zeros are one.
#[inline(always)]
fn ascending(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// Ranks a token: of equal values the smallest id comes first.
#[inline(always)]
pub(super) fn rank_of(value: f32, id: usize) -> u64 {
    u64::from(ascending(value)) << 32 | u64::from(!(id as u32))
}

/// Returns the id of the highest rank.
#[inline(always)]
fn first(ids: impl Iterator<Item = usize>, rank: impl Fn(usize) -> u64) -> usize {
    ids.max_by_key(|id| rank(*id)).unwrap_or(0)
}

/// The place of the largest logit of a row, that logit, and the rest of its log-sum-exp.
pub(super) struct Likelihood {
    largest: usize,
    top: f32,
    log_sum: f32,
}

impl Likelihood {
    /// Returns the log-probability of a logit, and the log-sum-exp.
    pub(super) fn of(&self, logit: f32) -> (f32, f32) {
        (logit - self.top - self.log_sum, self.top + self.log_sum)
    }
}

/// Sums a row up; none if a logit is not finite.
#[inline(always)]
pub(super) fn likelihood(logits: &[f32]) -> Option<Likelihood> {
    if !logits.iter().all(|logit| logit.is_finite()) {
        return None;
    }
    let largest = first(0..logits.len(), |id| rank_of(logits[id], id));
    let top = logits[largest];
    let total: u64 = logits.iter().map(|logit| weight_of(logit - top)).sum();
    Some(Likelihood { largest, top, log_sum: ln(total as f32 * UNIT) })
}

/// A draw from a row.
struct Draw {
    token: u32,
    log_prob: f32,
    lse: f32,
}

/// Returns the tokens that top-k and then top-p leave of a row whose logits are finite, in ascending order.
pub fn kept(p: &sample_params, logits: &[f32]) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    if p.top_k == 0 && p.top_p >= 1.0 {
        return ids;
    }
    ids.sort_unstable_by_key(|id| std::cmp::Reverse(rank_of(logits[*id], *id)));
    if p.top_k > 0 {
        ids.truncate(p.top_k as usize);
    }
    if p.top_p < 1.0 {
        let (top, inverse) = (logits[ids[0]], 1.0 / p.temperature);
        let weights: Vec<u64> = ids.iter().map(|id| weight_of((logits[*id] - top) * inverse)).collect();
        let target = ((f64::from(p.top_p) * weights.iter().sum::<u64>() as f64) as u64).max(1);
        ids.truncate(sums(&weights).take_while(|sum| *sum < target).count() + 1);
    }
    ids.sort_unstable();
    ids
}

/// Returns the sum of the weights up to each.
fn sums(weights: &[u64]) -> impl Iterator<Item = u64> {
    weights.iter().scan(0, |sum, weight| {
        *sum += weight;
        Some(*sum)
    })
}

/// Draws from a row; none if a logit is not finite.
#[inline(always)]
fn draw(p: &sample_params, logits: &[f32], random: u64) -> Option<Draw> {
    let likelihood = likelihood(logits)?;
    let token = if p.temperature > 0.0 {
        let (inverse, top, ids) = (1.0 / p.temperature, likelihood.top, kept(p, logits));
        let weights: Vec<u64> = ids.iter().map(|id| weight_of((logits[*id] - top) * inverse)).collect();
        let total: u64 = weights.iter().sum();
        let target = ((u128::from(random) * u128::from(total)) >> 64) as u64;
        ids[sums(&weights).take_while(|sum| *sum <= target).count()]
    } else {
        likelihood.largest
    };
    let (log_prob, lse) = likelihood.of(logits[token]);
    Some(Draw { token: token as u32, log_prob, lse })
}

pub(super) fn sample(p: &sample_params, views: &mut Views<'_>) {
    let logits = views.load("logits");
    let [sequences, positions] = ["sequence", "position"].map(|name| views.read::<u32>(name));
    let tokens = views.write::<u32>("token");
    let [log_probs, lses] = ["log_prob", "lse"].map(|name| views.write::<f32>(name));
    let rows = logits.par_chunks(p.vocab as usize).zip(sequences.par_chunks(2)).zip(positions);
    let outputs = tokens.par_iter_mut().zip(log_probs).zip(lses);
    rows.zip(outputs).for_each(|(((logits, sequence), position), ((token, log_prob), lse))| {
        let random = random(p.seed, [*position, sequence[0], sequence[1]]);
        let drawn = vectorized(|| draw(p, logits, random));
        let drawn = drawn.unwrap_or(Draw { token: NO_TOKEN, log_prob: 0.0, lse: 0.0 });
        (*token, *log_prob, *lse) = (drawn.token, drawn.log_prob, drawn.lse);
    });
}
