use precast_kernels::abi::{qk_norm_gated_bwd_params, qk_norm_gated_dgrad_params, qk_norm_gated_fwd_params};

use super::calculus::{dot, dots, sum};
use super::launch::Launch;
use super::rmsnorm::{gamma, normalized};

/// Rows of `[query, gate]` of each head, then keys, then values.
struct Heads {
    d: usize,
    half: usize,
    queries: usize,
    keys: usize,
    eps: f64,
    cos: Vec<f64>,
    sin: Vec<f64>,
    positions: Vec<usize>,
}

impl Heads {
    fn new(launch: &Launch, eps: f32, [queries, keys]: [u32; 2]) -> Self {
        let [queries, keys] = [queries, keys].map(|heads| heads as usize);
        let [cos, sin] = ["cos", "sin"].map(|name| launch.before(name));
        let positions = launch.before("position").into_iter().map(|position| position as usize).collect();
        let (d, half) = (launch.size("d"), launch.size("rotary") / 2);
        launch.goes("all rotates", 2 * half == d);
        Self { d, half, queries, keys, eps: f64::from(eps), cos, sin, positions }
    }

    /// Elements of a row with gates, and without.
    fn widths(&self) -> [usize; 2] {
        [2 * (self.queries + self.keys), self.queries + 2 * self.keys].map(|heads| heads * self.d)
    }

    /// Turns the first elements of a head as complex numbers, of which the second half is imaginary.
    fn turned(&self, head: &[f64], position: usize) -> Vec<f64> {
        let [cos, sin] = [&self.cos, &self.sin].map(|table| &table[position * self.half..][..self.half]);
        let (real, rest) = head.split_at(self.half);
        let (imaginary, rest) = rest.split_at(self.half);
        let new_real = (0..self.half).map(|i| real[i] * cos[i] - imaginary[i] * sin[i]);
        let new_imaginary = (0..self.half).map(|i| imaginary[i] * cos[i] + real[i] * sin[i]);
        new_real.chain(new_imaginary).chain(rest.iter().copied()).collect()
    }

    /// Queries, keys and values of rows at these positions.
    fn forward(&self, packed: &[f64], gammas: &[f64], positions: &[usize]) -> Vec<f64> {
        let (query_gamma, key_gamma) = gammas.split_at(self.d);
        let row = |(row, position): (&[f64], &usize)| {
            let (queries, others) = row.split_at(2 * self.queries * self.d);
            let (keys, values) = others.split_at(self.keys * self.d);
            let queries: Vec<f64> = queries.chunks(2 * self.d).flat_map(|pair| pair[..self.d].to_vec()).collect();
            let parts = [(&queries[..], query_gamma), (keys, key_gamma)];
            let normed = parts.into_iter().flat_map(|(part, gamma)| normalized(part, gamma, self.eps).0);
            let normed: Vec<f64> = normed.collect();
            let turned = normed.chunks(self.d).flat_map(|head| self.turned(head, *position));
            turned.chain(values.iter().copied()).collect::<Vec<_>>()
        };
        packed.chunks(self.widths()[0]).zip(positions).flat_map(row).collect()
    }

    /// Asserts the gradient of the heads, and that what is there for gates is as before.
    fn have_gradient(&self, launch: &Launch) {
        let [packed, dqkv, mut kept] = ["packed", "dqkv", "dpacked"].map(|name| launch.before(name));
        let ([packed_width, width], gammas, mut after) = (self.widths(), gamma(launch), launch.after("dpacked"));
        for rows in [&mut kept, &mut after] {
            for row in rows.chunks_mut(packed_width) {
                let (pairs, others) = row.split_at_mut(2 * self.queries * self.d);
                pairs.chunks_mut(2 * self.d).for_each(|pair| pair[..self.d].fill(0.0));
                others.fill(0.0);
            }
        }
        assert_eq!(after, kept);
        launch.is_gradient("dpacked", &packed, |packed| {
            let losses = dots(&self.forward(packed, &gammas, &self.positions), &dqkv, width);
            sum(&losses, &dots(packed, &kept, packed_width))
        });
    }
}

pub fn fwd(launch: &mut Launch) {
    let qk_norm_gated_fwd_params { eps, query_heads, key_heads, .. } = launch.params();
    let heads = Heads::new(launch, eps, [query_heads, key_heads]);
    launch.is("qkv", &heads.forward(&launch.before("packed"), &gamma(launch), &heads.positions));
}

pub fn dgrad(launch: &mut Launch) {
    let qk_norm_gated_dgrad_params { eps, query_heads, key_heads, .. } = launch.params();
    Heads::new(launch, eps, [query_heads, key_heads]).have_gradient(launch);
}

pub fn bwd(launch: &mut Launch) {
    let qk_norm_gated_bwd_params { eps, tokens, query_heads, key_heads, rows, .. } = launch.params();
    let heads = Heads::new(launch, eps, [query_heads, key_heads]);
    heads.have_gradient(launch);
    let ([packed, dqkv], gammas) = (["packed", "dqkv"].map(|name| launch.before(name)), gamma(launch));
    let [packed_group, group] = heads.widths().map(|width| width * rows as usize);
    launch.is_gradient("dgamma_partial", &gammas.repeat(tokens.div_ceil(rows) as usize), |all| {
        let groups = packed.chunks(packed_group).zip(dqkv.chunks(group)).zip(heads.positions.chunks(rows as usize));
        let of_group = |(gammas, ((packed, dqkv), positions))| dot(&heads.forward(packed, gammas, positions), dqkv);
        all.chunks(gammas.len()).zip(groups).map(of_group).collect()
    });
}
