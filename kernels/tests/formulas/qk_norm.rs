use precast_kernels::abi::{
    qk_norm_bwd_params, qk_norm_dgrad_params, qk_norm_fwd_params, qk_norm_row_bwd_params, qk_norm_row_dgrad_params,
    qk_norm_row_fwd_params,
};

use super::calculus::{dot, dots};
use super::launch::Launch;
use super::rmsnorm::{gamma, normalized};

/// Heads of a row: queries, keys behind them, and values that nothing touches.
struct Heads {
    d: usize,
    /// True if queries are normalized together, and keys.
    row: bool,
    eps: f64,
    queries: usize,
    rotated: usize,
    all: usize,
    cos: Vec<f64>,
    sin: Vec<f64>,
}

impl Heads {
    fn of_row(launch: &Launch, eps: f32, [keys, all]: [u32; 2]) -> Self {
        Self { row: true, ..Self::new(launch, eps, [launch.size("heads") as u32, keys, all]) }
    }

    fn new(launch: &Launch, eps: f32, [queries, keys, all]: [u32; 3]) -> Self {
        let [queries, rotated, all] = [queries, queries + keys, all].map(|heads| heads as usize);
        let [cos, sin] = ["cos", "sin"].map(|name| launch.before(name));
        Self { d: launch.size("d"), row: false, eps: f64::from(eps), queries, rotated, all, cos, sin }
    }

    /// Divides the heads of a row by their root mean square, and multiplies by the gamma of queries or of keys.
    fn normalize(&self, row: &[f64], gamma: &[f64]) -> Vec<f64> {
        let (queries, keys) = row[..self.rotated * self.d].split_at(self.queries * self.d);
        let of_queries = if self.row { queries.len() } else { self.d };
        let (query_gamma, key_gamma) = gamma.split_at(of_queries);
        let parts = [(queries, query_gamma), (keys, key_gamma)];
        parts.into_iter().flat_map(|(part, gamma)| normalized(part, gamma, self.eps).0).collect()
    }

    /// Rows at these positions: normalized, then rotated.
    fn forward(&self, x: &[f64], gamma: &[f64], positions: &[usize]) -> Vec<f64> {
        let d = self.d;
        let row = |(row, position): (&[f64], &usize)| {
            let tables = [&self.cos, &self.sin].map(|table| &table[position * d / 2..][..d / 2]);
            let turn = |head: &[f64]| {
                let ((first, second), [cos, sin]) = (head.split_at(d / 2), tables);
                let real = (0..d / 2).map(|i| first[i] * cos[i] - second[i] * sin[i]);
                real.chain((0..d / 2).map(|i| second[i] * cos[i] + first[i] * sin[i])).collect::<Vec<_>>()
            };
            let heads = self.normalize(row, gamma).chunks(d).flat_map(turn).collect::<Vec<_>>();
            [&heads[..], &row[heads.len()..]].concat()
        };
        x.chunks(self.all * d).zip(positions).flat_map(row).collect()
    }

    /// The query and key heads of each row.
    fn without_values(&self, x: &[f64]) -> Vec<f64> {
        x.chunks(self.all * self.d).flat_map(|row| row[..self.rotated * self.d].to_vec()).collect()
    }

    /// Asserts that the heads of values are those of before, to the bit.
    fn keep_values(&self, launch: &Launch, name: &str) {
        let values = |x: Vec<f64>| {
            x.chunks(self.all * self.d).flat_map(|row| row[self.rotated * self.d..].to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(values(launch.after(name)), values(launch.before(name)));
    }

    fn are_forward(&self, launch: &Launch, positions: &[usize]) {
        launch.is("x", &self.forward(&launch.before("x"), &gamma(launch), positions));
        self.keep_values(launch, "x");
    }

    /// Asserts the gradient of the heads, and returns the rows that they were in.
    fn have_gradient(&self, launch: &Launch, positions: &[usize]) -> Vec<f64> {
        let (dy, gamma) = (launch.before("dx"), gamma(launch));
        let mut x = dy.clone();
        let raw = launch.before("raw");
        let rows = x.chunks_mut(self.all * self.d).zip(raw.chunks(self.rotated * self.d));
        rows.for_each(|(row, raw)| row[..raw.len()].copy_from_slice(raw));
        launch.is_gradient("dx", &x, |x| {
            dots(&self.forward(x, &gamma, positions), &dy, if self.row { self.all * self.d } else { self.d })
        });
        self.keep_values(launch, "dx");
        x
    }
}

fn positions(launch: &Launch) -> Vec<usize> {
    launch.before("position").into_iter().map(|position| position as usize).collect()
}

fn are_forward(launch: &Launch, heads: &Heads) {
    heads.are_forward(launch, &positions(launch));
    if launch.flag("keep") {
        assert_eq!(launch.after("raw"), heads.without_values(&launch.before("x")));
    }
}

fn have_gradients(launch: &Launch, heads: &Heads, [tokens, rows]: [u32; 2]) {
    let positions = positions(launch);
    let (x, gamma, dy) = (heads.have_gradient(launch, &positions), gamma(launch), launch.before("dx"));
    let group = rows as usize * heads.all * heads.d;
    launch.is_gradient("dgamma_partial", &gamma.repeat(tokens.div_ceil(rows) as usize), |gammas| {
        let groups = x.chunks(group).zip(dy.chunks(group)).zip(positions.chunks(rows as usize));
        let of_group = |(gamma, ((x, dy), positions))| dot(&heads.forward(x, gamma, positions), dy);
        gammas.chunks(gamma.len()).zip(groups).map(of_group).collect()
    });
}

pub fn fwd(launch: &mut Launch) {
    let qk_norm_fwd_params { eps, query_heads, key_heads, row_heads, .. } = launch.params();
    are_forward(launch, &Heads::new(launch, eps, [query_heads, key_heads, row_heads]));
}

pub fn dgrad(launch: &mut Launch) {
    let qk_norm_dgrad_params { eps, query_heads, key_heads, row_heads, .. } = launch.params();
    let heads = Heads::new(launch, eps, [query_heads, key_heads, row_heads]);
    heads.have_gradient(launch, &positions(launch));
}

pub fn bwd(launch: &mut Launch) {
    let qk_norm_bwd_params { eps, tokens, query_heads, key_heads, row_heads, rows, .. } = launch.params();
    have_gradients(launch, &Heads::new(launch, eps, [query_heads, key_heads, row_heads]), [tokens, rows]);
}

pub fn row_fwd(launch: &mut Launch) {
    let qk_norm_row_fwd_params { eps, key_heads, row_heads, .. } = launch.params();
    are_forward(launch, &Heads::of_row(launch, eps, [key_heads, row_heads]));
}

pub fn row_dgrad(launch: &mut Launch) {
    let qk_norm_row_dgrad_params { eps, key_heads, row_heads, .. } = launch.params();
    Heads::of_row(launch, eps, [key_heads, row_heads]).have_gradient(launch, &positions(launch));
}

pub fn row_bwd(launch: &mut Launch) {
    let qk_norm_row_bwd_params { eps, tokens, key_heads, row_heads, rows, .. } = launch.params();
    have_gradients(launch, &Heads::of_row(launch, eps, [key_heads, row_heads]), [tokens, rows]);
}
