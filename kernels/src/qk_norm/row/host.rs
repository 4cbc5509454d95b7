use rayon::prelude::*;

use super::super::host::{Angles, rotate_back};
use super::{QkNormRowBwd, QkNormRowDgrad, QkNormRowFwd};
use crate::abi::{qk_norm_row_bwd_params, qk_norm_row_dgrad_params, qk_norm_row_fwd_params};
use crate::host::Views;
use crate::rmsnorm::{mean, rstd};

/// Widths of queries, of keys, and of a row, elements.
struct Widths {
    queries: usize,
    keys: usize,
    row: usize,
}

impl Widths {
    fn new(d: u32, heads: u32, keys: u32, row: u32) -> Self {
        let [queries, keys, row] = [heads, keys, row].map(|heads| (heads * d) as usize);
        Self { queries, keys, row }
    }

    /// Queries and keys.
    fn both(&self) -> usize {
        self.queries + self.keys
    }

    /// Returns where each begins and ends.
    fn parts(&self) -> [std::ops::Range<usize>; 2] {
        [0..self.queries, self.queries..self.both()]
    }
}

pub(super) fn fwd(key: QkNormRowFwd, p: &qk_norm_row_fwd_params, views: &mut Views<'_>) {
    let widths = Widths::new(key.d, key.heads, p.key_heads, p.row_heads);
    let (d, half) = (key.d as usize, key.d as usize / 2);
    let mut x = views.store("x");
    if key.keep {
        let mut raw = views.store("raw");
        let rows = raw.par_chunks_mut(widths.both()).zip(x.par_chunks(widths.row));
        rows.for_each(|(raw, row)| raw.copy_from_slice(&row[..raw.len()]));
    }
    let gamma = key.gamma.of(views.load("gamma"));
    let angles = Angles::read(views, half);
    x.par_chunks_mut(widths.row).enumerate().for_each(|(token, row)| {
        let [cos, sin] = angles.of(token);
        for part in widths.parts() {
            let rstd = rstd(&row[part.clone()], p.eps);
            let heads = row[part.clone()].chunks_mut(d).zip(gamma[part].chunks(d));
            for (head, gamma) in heads {
                for i in 0..half {
                    let (a, b) = (gamma[i] * (head[i] * rstd), gamma[half + i] * (head[half + i] * rstd));
                    head[i] = a * cos[i] - b * sin[i];
                    head[half + i] = b * cos[i] + a * sin[i];
                }
            }
        }
    });
}

/// Replaces the gradient of a token's rotated heads by that of what they were, `x`; calls `each` with every column and
/// its share of the gradient of gamma.
fn gradient(
    row: &mut [f32],
    (x, gamma): (&[f32], &[f32]),
    (widths, d): (&Widths, usize),
    ([cos, sin], eps): ([&[f32]; 2], f32),
    mut each: impl FnMut(usize, f32),
) {
    for part in widths.parts() {
        row[part.clone()].chunks_mut(d).for_each(|head| rotate_back(head, cos, sin));
        let rstd = rstd(&x[part.clone()], eps);
        let mean = mean(&gamma[part.clone()], &row[part.clone()], &x[part.clone()], rstd);
        for i in part {
            let n = x[i] * rstd;
            each(i, row[i] * n);
            row[i] = rstd * (gamma[i] * row[i] - n * mean);
        }
    }
}

pub(super) fn bwd(key: QkNormRowBwd, p: &qk_norm_row_bwd_params, views: &mut Views<'_>) {
    let widths = Widths::new(key.d, key.heads, p.key_heads, p.row_heads);
    let (d, rows) = (key.d as usize, p.rows as usize);
    let (gamma, raw) = (key.gamma.of(views.load("gamma")), views.load("raw"));
    let angles = Angles::read(views, d / 2);
    let partial = views.write::<f32>("dgamma_partial");
    let mut dx = views.store("dx");
    let groups = dx.par_chunks_mut(rows * widths.row).zip(raw.par_chunks(rows * widths.both()));
    groups.zip(partial.par_chunks_mut(widths.both())).enumerate().for_each(|(group, ((dx, raw), partial))| {
        let mut dgamma = vec![0.0f64; partial.len()];
        let tokens = dx.chunks_mut(widths.row).zip(raw.chunks(widths.both())).enumerate();
        for (row, (dx, x)) in tokens {
            let angles = angles.of(group * rows + row);
            let add = |i: usize, share: f32| dgamma[i] += f64::from(share);
            gradient(dx, (x, &gamma), (&widths, d), (angles, p.eps), add);
        }
        partial.iter_mut().zip(&dgamma).for_each(|(partial, sum)| *partial = *sum as f32);
    });
}

pub(super) fn dgrad(key: QkNormRowDgrad, p: &qk_norm_row_dgrad_params, views: &mut Views<'_>) {
    let widths = Widths::new(key.d, key.heads, p.key_heads, p.row_heads);
    let d = key.d as usize;
    let (gamma, raw) = (key.gamma.of(views.load("gamma")), views.load("raw"));
    let angles = Angles::read(views, d / 2);
    let mut dx = views.store("dx");
    let rows = dx.par_chunks_mut(widths.row).zip(raw.par_chunks(widths.both())).enumerate();
    rows.for_each(|(token, (dx, x))| gradient(dx, (x, &gamma), (&widths, d), (angles.of(token), p.eps), |_, _| ()));
}
