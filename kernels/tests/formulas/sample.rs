use precast_kernels::abi::{MASKED_TOKEN, NO_TOKEN, sample_params, sample_score_params, sample_top_params};

use super::calculus::log_sum_exp;
use super::launch::Launch;

/// A number from 0 to 1 of a position: the first half of the bits of Philox4x32-10.
fn random(seed: u64, sequence: &[f64], position: f64) -> f64 {
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut c = [0, position as u32, sequence[0] as u32, sequence[1] as u32];
    for _ in 0..10 {
        let (a, b) = (0xD251_1F53 * u64::from(c[0]), 0xCD9E_8D57 * u64::from(c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    (f64::from(c[1]) + f64::from(c[0]) / 2f64.powi(32)) / 2f64.powi(32)
}

/// The tokens to draw from, the most probable one first; of equal ones the smallest.
fn kept(launch: &Launch, p: &sample_params, logits: &[f64]) -> Vec<usize> {
    let mut tokens: Vec<usize> = (0..logits.len()).collect();
    tokens.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    if launch.goes("top-k", p.top_k > 0) {
        tokens.truncate(p.top_k as usize);
    }
    if launch.goes("top-p", p.top_p < 1.0) {
        let scaled: Vec<f64> = tokens.iter().map(|token| logits[*token] / f64::from(p.temperature)).collect();
        let total = log_sum_exp(&scaled);
        let mut sum = 0.0;
        let fewer = scaled.iter().take_while(|logit| {
            sum += (**logit - total).exp();
            sum < f64::from(p.top_p)
        });
        tokens.truncate(fewer.count() + 1);
    }
    tokens
}

/// The first token up to which the probabilities of those kept sum to more than a random number.
fn drawn(launch: &Launch, p: &sample_params, logits: &[f64], sequence: &[f64], position: f64) -> usize {
    let by_temperature = launch.goes("draws", p.temperature > 0.0);
    match by_temperature {
        true => {
            let mut tokens = kept(launch, p, logits);
            tokens.sort_unstable();
            let scaled: Vec<f64> = tokens.iter().map(|token| logits[*token] / f64::from(p.temperature)).collect();
            let (total, random) = (log_sum_exp(&scaled), random(p.seed, sequence, position));
            let mut sum = 0.0;
            let before = scaled.iter().take_while(|logit| {
                sum += (**logit - total).exp();
                sum <= random
            });
            tokens[before.count()]
        }
        false => (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("a token"),
    }
}

pub fn sample(launch: &mut Launch) {
    let p: sample_params = launch.params();
    let (logits, sequences, positions) =
        (launch.before("logits"), launch.before("sequence"), launch.before("position"));
    let rows = logits.chunks(p.vocab as usize).zip(sequences.chunks(2)).zip(&positions);
    let of_row = |((logits, sequence), position): ((&[f64], &[f64]), &f64)| {
        if launch.goes("is not finite", logits.iter().any(|logit| !logit.is_finite())) {
            return [f64::from(NO_TOKEN), 0.0, 0.0];
        }
        let (token, lse) = (drawn(launch, &p, logits, sequence, *position), log_sum_exp(logits));
        [token as f64, logits[token] - lse, lse]
    };
    let expected: Vec<[f64; 3]> = rows.map(of_row).collect();
    let of = |index: usize| expected.iter().map(|row| row[index]).collect::<Vec<_>>();
    assert_eq!(launch.after("token"), of(0));
    launch.is("log_prob", &of(1));
    launch.is("lse", &of(2));
}

pub fn score(launch: &mut Launch) {
    let p: sample_score_params = launch.params();
    let (logits, tokens) = (launch.before("logits"), launch.before("token"));
    let of_row = |(logits, token): (&[f64], &f64)| {
        let is_masked = launch.goes("is masked", *token == f64::from(MASKED_TOKEN));
        if is_masked || launch.goes("is not finite", logits.iter().any(|logit| !logit.is_finite())) {
            return [0.0, 0.0];
        }
        let lse = log_sum_exp(logits);
        [logits[*token as usize] - lse, lse]
    };
    let expected: Vec<[f64; 2]> = logits.chunks(p.vocab as usize).zip(&tokens).map(of_row).collect();
    for (index, name) in ["log_prob", "lse"].into_iter().enumerate() {
        launch.is(name, &expected.iter().map(|row| row[index]).collect::<Vec<_>>());
    }
}

pub fn top(launch: &mut Launch) {
    let p: sample_top_params = launch.params();
    let logits = launch.before("logits");
    let (mut ids, mut log_probs) = (Vec::new(), Vec::new());
    for logits in logits.chunks(p.vocab as usize) {
        let mut tokens: Vec<usize> = (0..logits.len()).collect();
        tokens.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        let scaled: Vec<f64> = tokens.iter().map(|token| logits[*token] / f64::from(p.temperature)).collect();
        let (total, (kept, rest)) = (log_sum_exp(&scaled), scaled.split_at(p.keep as usize));
        ids.extend(tokens[..p.keep as usize].iter().map(|token| *token as f64));
        log_probs.extend(kept.iter().map(|logit| logit - total).chain([log_sum_exp(rest) - total]));
    }
    assert_eq!(launch.after("ids"), ids);
    launch.is("log_probs", &log_probs);
}
