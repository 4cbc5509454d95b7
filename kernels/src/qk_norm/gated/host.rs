use rayon::prelude::*;

use super::super::host::{Angles, rotate_back};
use super::{QkNormGatedBwd, QkNormGatedDgrad, QkNormGatedFwd};
use crate::abi::{qk_norm_gated_bwd_params, qk_norm_gated_dgrad_params, qk_norm_gated_fwd_params};
use crate::host::Views;
use crate::rmsnorm::{mean, rstd};

/// Heads of a row.
#[derive(Clone, Copy)]
struct Heads {
    queries: usize,
    keys: usize,
    d: usize,
}

impl Heads {
    fn new(d: u32, queries: u32, keys: u32) -> Self {
        let [d, queries, keys] = [d, queries, keys].map(|size| size as usize);
        Self { queries, keys, d }
    }

    /// Returns the elements of a row without gates, and with them.
    fn widths(self) -> [usize; 2] {
        [self.queries + 2 * self.keys, 2 * (self.queries + self.keys)].map(|heads| heads * self.d)
    }

    /// Returns the place of a head among rows with gates.
    fn place(self, head: usize) -> usize {
        self.d * if head < self.queries { 2 * head } else { self.queries + head }
    }
}

pub(super) fn fwd(key: QkNormGatedFwd, p: &qk_norm_gated_fwd_params, views: &mut Views<'_>) {
    let heads = Heads::new(key.d, p.query_heads, p.key_heads);
    let (d, half) = (heads.d, key.rotary as usize / 2);
    let [width, packed_width] = heads.widths();
    let (packed, gamma) = (views.load("packed"), key.gamma.of(views.load("gamma")));
    let angles = Angles::read(views, half);
    let mut qkv = views.store("qkv");
    qkv.par_chunks_mut(width).zip(packed.par_chunks(packed_width)).enumerate().for_each(|(token, (row, packed))| {
        let [cos, sin] = angles.of(token);
        for (index, head) in row.chunks_mut(d).enumerate() {
            let x = &packed[heads.place(index)..][..d];
            if index >= heads.queries + heads.keys {
                head.copy_from_slice(x);
                continue;
            }
            let gamma = &gamma[usize::from(index >= heads.queries) * d..][..d];
            let rstd = rstd(x, p.eps);
            head.iter_mut().enumerate().for_each(|(i, y)| *y = gamma[i] * (x[i] * rstd));
            for i in 0..half {
                let (a, b) = (head[i], head[half + i]);
                (head[i], head[half + i]) = (a * cos[i] - b * sin[i], b * cos[i] + a * sin[i]);
            }
        }
    });
}

/// Writes the gradient of a token's heads as they were, `x`; calls `each` with every element of both gammas and its
/// share of their gradient.
fn gradient(
    heads: Heads,
    (x, gamma, dqkv): (&[f32], &[f32], &[f32]),
    dpacked: &mut [f32],
    ([cos, sin], eps): ([&[f32]; 2], f32),
    mut each: impl FnMut(usize, f32),
) {
    let d = heads.d;
    for (index, dy) in dqkv.chunks(d).enumerate() {
        let (x, dx) = (&x[heads.place(index)..][..d], &mut dpacked[heads.place(index)..][..d]);
        if index >= heads.queries + heads.keys {
            dx.copy_from_slice(dy);
            continue;
        }
        let first = usize::from(index >= heads.queries) * d;
        let gamma = &gamma[first..][..d];
        let mut dy = dy.to_vec();
        rotate_back(&mut dy[..2 * cos.len()], cos, sin);
        let rstd = rstd(x, eps);
        let mean = mean(gamma, &dy, x, rstd);
        for i in 0..d {
            let n = x[i] * rstd;
            each(first + i, dy[i] * n);
            dx[i] = rstd * (gamma[i] * dy[i] - n * mean);
        }
    }
}

pub(super) fn bwd(key: QkNormGatedBwd, p: &qk_norm_gated_bwd_params, views: &mut Views<'_>) {
    let heads = Heads::new(key.d, p.query_heads, p.key_heads);
    let rows = p.rows as usize;
    let [width, packed_width] = heads.widths();
    let (packed, dqkv, gamma) = (views.load("packed"), views.load("dqkv"), key.gamma.of(views.load("gamma")));
    let angles = Angles::read(views, key.rotary as usize / 2);
    let partial = views.write::<f32>("dgamma_partial");
    let mut dpacked = views.store("dpacked");
    let groups = dpacked.par_chunks_mut(rows * packed_width).zip(partial.par_chunks_mut(2 * heads.d)).enumerate();
    groups.for_each(|(group, (dpacked, partial))| {
        let mut dgamma = vec![0.0f64; partial.len()];
        for (row, dpacked) in dpacked.chunks_mut(packed_width).enumerate() {
            let token = group * rows + row;
            let inputs = (&packed[token * packed_width..][..packed_width], &gamma[..], &dqkv[token * width..][..width]);
            let add = |i: usize, share: f32| dgamma[i] += f64::from(share);
            gradient(heads, inputs, dpacked, (angles.of(token), p.eps), add);
        }
        partial.iter_mut().zip(&dgamma).for_each(|(partial, sum)| *partial = *sum as f32);
    });
}

pub(super) fn dgrad(key: QkNormGatedDgrad, p: &qk_norm_gated_dgrad_params, views: &mut Views<'_>) {
    let heads = Heads::new(key.d, p.query_heads, p.key_heads);
    let [width, packed_width] = heads.widths();
    let (packed, dqkv, gamma) = (views.load("packed"), views.load("dqkv"), key.gamma.of(views.load("gamma")));
    let angles = Angles::read(views, key.rotary as usize / 2);
    let mut dpacked = views.store("dpacked");
    let rows = dpacked.par_chunks_mut(packed_width).zip(packed.par_chunks(packed_width));
    rows.zip(dqkv.par_chunks(width)).enumerate().for_each(|(token, ((dpacked, packed), dqkv))| {
        gradient(heads, (packed, &gamma, dqkv), dpacked, (angles.of(token), p.eps), |_, _| ());
    });
}
