use precast_kernels::Key;
use precast_kernels::abi::{attention_bwd_params, attention_delta_params, attention_fwd_params};

use super::calculus::{dot, gradient, log_sum_exp};
use super::launch::{Launch, size};

/// Sizes of an attention: rows are tokens of [query heads, key heads, value heads].
struct Attention {
    batch: usize,
    seq_len: usize,
    heads: usize,
    kv_heads: usize,
    d: usize,
    scale: f64,
}

impl Attention {
    fn of(key: &Key) -> Self {
        Self { batch: 2, seq_len: 5, heads: 4, kv_heads: 2, d: size(key, "d"), scale: 0.3 }
    }

    fn head<'a>(&self, qkv: &'a [f64], token: usize, head: usize) -> &'a [f64] {
        &qkv[(token * (self.heads + 2 * self.kv_heads) + head) * self.d..][..self.d]
    }

    /// Every query's output [batch, seq_len, heads, d] and log-sum-exp [batch, heads, seq_len].
    fn forward(&self, qkv: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut o = vec![0.0; self.batch * self.seq_len * self.heads * self.d];
        let mut lse = vec![0.0; self.batch * self.heads * self.seq_len];
        for (batch, head) in (0..self.batch).flat_map(|batch| (0..self.heads).map(move |head| (batch, head))) {
            let group = head * self.kv_heads / self.heads;
            for query in 0..self.seq_len {
                let token = |position: usize| batch * self.seq_len + position;
                let q = self.head(qkv, token(query), head);
                let keys = (0..=query).map(|key| self.head(qkv, token(key), self.heads + group));
                let scores: Vec<f64> = keys.map(|key| self.scale * dot(q, key)).collect();
                let total = log_sum_exp(&scores);
                lse[(batch * self.heads + head) * self.seq_len + query] = total;
                for (key, score) in scores.iter().enumerate() {
                    let value = self.head(qkv, token(key), self.heads + self.kv_heads + group);
                    let out = &mut o[(token(query) * self.heads + head) * self.d..][..self.d];
                    out.iter_mut().zip(value).for_each(|(out, value)| *out += (score - total).exp() * value);
                }
            }
        }
        (o, lse)
    }

    /// Sums of each query's output times its gradient, [batch, heads, seq_len].
    fn delta(&self, o: &[f64], d_o: &[f64]) -> Vec<f64> {
        let row = |token: usize, head: usize| (token * self.heads + head) * self.d;
        let of = |batch: usize, head: usize, query: usize| {
            let at = row(batch * self.seq_len + query, head);
            dot(&o[at..][..self.d], &d_o[at..][..self.d])
        };
        let heads = (0..self.batch).flat_map(|batch| (0..self.heads).map(move |head| (batch, head)));
        heads
            .flat_map(|(batch, head)| (0..self.seq_len).map(move |query| (batch, head, query)))
            .map(|(b, h, q)| of(b, h, q))
            .collect()
    }
}

pub fn fwd(key: &Key) {
    let sizes = Attention::of(key);
    let launch = Launch::new(
        key,
        attention_fwd_params { batch: 2, seq_len: 5, heads: 4, kv_heads: 2, scale: 0.3, ..Default::default() },
    );
    let (o, lse) = sizes.forward(&launch.before("qkv"));
    launch.is("o", &o);
    launch.is("lse", &lse);
}

pub fn delta(key: &Key) {
    let sizes = Attention::of(key);
    let launch = Launch::new(key, attention_delta_params { batch: 2, seq_len: 5, heads: 4, ..Default::default() });
    launch.is("delta", &sizes.delta(&launch.before("o"), &launch.before("d_o")));
}

pub fn bwd(key: &Key) {
    let sizes = Attention::of(key);
    let params = attention_bwd_params { batch: 2, seq_len: 5, heads: 4, kv_heads: 2, scale: 0.3, ..Default::default() };
    let launch = Launch::with(key, params, |launch| {
        let (o, lse) = sizes.forward(&launch.before("qkv"));
        vec![("lse", lse), ("delta", sizes.delta(&o, &launch.before("d_o")))]
    });
    let d_o = launch.before("d_o");
    launch.is("dqkv", &gradient(&launch.before("qkv"), |qkv| dot(&sizes.forward(qkv).0, &d_o)));
}
