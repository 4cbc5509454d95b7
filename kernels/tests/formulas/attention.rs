use precast_kernels::abi::{
    IDLE_SLOT, attention_bwd_params, attention_decode_params, attention_delta_params, attention_fwd_params,
};

use super::calculus::{dot, dots, log_sum_exp};
use super::launch::Launch;

/// An attention: rows are tokens of [query heads, key heads, value heads], of sequences that lie end to end.
struct Attention {
    tokens: usize,
    /// Place of the first token of each, and tokens.
    sequences: Vec<(usize, usize)>,
    heads: usize,
    kv_heads: usize,
    d: usize,
    /// Keys that a query sees at most.
    window: usize,
    scale: f64,
}

/// Keys that a query sees at most.
fn window(launch: &Launch) -> usize {
    launch.optional("window").map_or(usize::MAX, |window| window.parse().expect("a number"))
}

impl Attention {
    fn new(sizes: [u32; 3], scale: f32, launch: &Launch) -> Self {
        let [tokens, heads, kv_heads] = sizes.map(|size| size as usize);
        let words = launch.before("sequences");
        let sequences = words.chunks(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect();
        Self {
            tokens,
            sequences,
            heads,
            kv_heads,
            d: launch.size("d"),
            window: window(launch),
            scale: f64::from(scale),
        }
    }

    fn head<'a>(&self, qkv: &'a [f64], token: usize, head: usize) -> &'a [f64] {
        &qkv[(token * (self.heads + 2 * self.kv_heads) + head) * self.d..][..self.d]
    }

    /// Every query's output [tokens, heads, d] and log-sum-exp [heads, tokens].
    fn forward(&self, qkv: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut o = vec![0.0; self.tokens * self.heads * self.d];
        let mut lse = vec![0.0; self.heads * self.tokens];
        let heads = self.sequences.iter().flat_map(|sequence| (0..self.heads).map(move |head| (sequence, head)));
        for ((first, tokens), head) in heads {
            let group = head * self.kv_heads / self.heads;
            for query in 0..*tokens {
                let token = |position: usize| first + position;
                let q = self.head(qkv, token(query), head);
                let first = (query + 1).saturating_sub(self.window);
                let keys = (first..=query).map(|key| self.head(qkv, token(key), self.heads + group));
                let scores: Vec<f64> = keys.map(|key| self.scale * dot(q, key)).collect();
                let total = log_sum_exp(&scores);
                lse[head * self.tokens + token(query)] = total;
                for (key, score) in (first..).zip(&scores) {
                    let value = self.head(qkv, token(key), self.heads + self.kv_heads + group);
                    let (weight, at) = ((score - total).exp(), (token(query) * self.heads + head) * self.d);
                    o[at..][..self.d].iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
                }
            }
        }
        (o, lse)
    }
}

/// Sums of each query's output times its gradient, [heads, tokens].
fn deltas(o: &[f64], d_o: &[f64], heads: usize, d: usize) -> Vec<f64> {
    let of_tokens = dots(o, d_o, d);
    (0..heads).flat_map(|head| of_tokens[head..].iter().step_by(heads).copied()).collect()
}

pub fn fwd(launch: &mut Launch) {
    let attention_fwd_params { tokens, heads, kv_heads, scale, .. } = launch.params();
    let sizes = Attention::new([tokens, heads, kv_heads], scale, launch);
    let (o, lse) = sizes.forward(&launch.before("qkv"));
    launch.is("o", &o);
    launch.is("lse", &lse);
}

/// The last row of a sequence of the slot's keys and values.
pub fn decode(launch: &mut Launch) {
    let (d, attention_decode_params { seq_len, heads, kv_heads, scale, .. }) = (launch.size("d"), launch.params());
    let [seq_len, heads, kv_heads] = [seq_len, heads, kv_heads].map(|size| size as usize);
    let window = window(launch);
    let (slots, positions) = (launch.before("slot"), launch.before("position"));
    let (qkv, pools) = (launch.before("qkv"), ["keys", "values"].map(|name| launch.before(name)));
    let rows = qkv.chunks((heads + 2 * kv_heads) * d).zip(slots.iter().zip(&positions));
    let of_row = |(queries, (slot, position)): (&[f64], (&f64, &f64))| {
        if launch.goes("idle", *slot == f64::from(IDLE_SLOT)) {
            return vec![0.0; heads * d];
        }
        let last = *position as usize;
        let at = |kv_head: usize, key: usize| ((*slot as usize * kv_heads + kv_head) * seq_len + key) * d;
        let of_key = |key: usize| {
            let of_heads =
                |pool: &Vec<f64>| (0..kv_heads).flat_map(|head| pool[at(head, key)..][..d].to_vec()).collect();
            let [keys, values]: [Vec<f64>; 2] = [of_heads(&pools[0]), of_heads(&pools[1])];
            [&queries[..heads * d], &keys, &values].concat()
        };
        let sequence: Vec<f64> = (0..=last).flat_map(of_key).collect();
        let (tokens, scale) = (last + 1, f64::from(scale));
        let sizes = Attention { tokens, sequences: vec![(0, tokens)], heads, kv_heads, d, window, scale };
        sizes.forward(&sequence).0[last * heads * d..].to_vec()
    };
    launch.is("o", &rows.flat_map(of_row).collect::<Vec<_>>());
}

pub fn delta(launch: &mut Launch) {
    let attention_delta_params { heads, .. } = launch.params();
    let (o, d_o) = (launch.before("o"), launch.before("d_o"));
    launch.is("delta", &deltas(&o, &d_o, heads as usize, launch.size("d")));
}

pub fn bwd(launch: &mut Launch) {
    let attention_bwd_params { tokens, heads, kv_heads, scale, .. } = launch.params();
    let sizes = Attention::new([tokens, heads, kv_heads], scale, launch);
    let (qkv, d_o) = (launch.before("qkv"), launch.before("d_o"));
    let (o, lse) = sizes.forward(&qkv);
    launch.set("lse", &lse);
    launch.set("delta", &deltas(&o, &d_o, sizes.heads, sizes.d));
    launch.is_gradient("dqkv", &qkv, |qkv| dots(&sizes.forward(qkv).0, &d_o, o.len()));
}
