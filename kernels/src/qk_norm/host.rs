use rayon::prelude::*;

use super::{QkNormBwd, QkNormDgrad, QkNormFwd};
use crate::abi::{qk_norm_bwd_params, qk_norm_dgrad_params, qk_norm_fwd_params};
use crate::host::Views;
use crate::rmsnorm::{mean, rstd};

/// Returns the gradient of a head before its rotation, in place.
pub(super) fn rotate_back(dy: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (first, second) = dy.split_at_mut(cos.len());
    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
        (*a, *b) = (*a * cos + *b * sin, *b * cos - *a * sin);
    }
}

/// Cosines and sines of positions, and the position of each token.
pub(super) struct Angles<'a> {
    half: usize,
    positions: &'a [u32],
    tables: [&'a [f32]; 2],
}

impl<'a> Angles<'a> {
    pub fn read(views: &mut Views<'a>, half: usize) -> Self {
        let tables = ["cos", "sin"].map(|table| views.read::<f32>(table));
        Self { half, positions: views.read::<u32>("position"), tables }
    }

    pub fn of(&self, token: usize) -> [&'a [f32]; 2] {
        self.tables.map(|table| &table[self.positions[token] as usize * self.half..][..self.half])
    }
}

pub(super) fn fwd(key: QkNormFwd, p: &qk_norm_fwd_params, views: &mut Views<'_>) {
    let (d, half) = (key.d as usize, key.d as usize / 2);
    let (queries, all, row_width) =
        (p.query_heads as usize, (p.query_heads + p.key_heads) as usize, p.row_heads as usize * key.d as usize);
    let mut x = views.store("x");
    if key.keep {
        let mut raw = views.store("raw");
        let rows = x.par_chunks(row_width);
        raw.par_chunks_mut(all * d).zip(rows).for_each(|(raw, row)| raw.copy_from_slice(&row[..all * d]));
    }
    let gamma = key.gamma.of(views.load("gamma"));
    let angles = Angles::read(views, half);
    x.par_chunks_mut(row_width).enumerate().for_each(|(token, row)| {
        let [cos, sin] = angles.of(token);
        for (index, head) in row.chunks_mut(d).take(all).enumerate() {
            let gamma = &gamma[usize::from(index >= queries) * d..][..d];
            let rstd = rstd(head, p.eps);
            for i in 0..half {
                let (a, b) = (gamma[i] * (head[i] * rstd), gamma[half + i] * (head[half + i] * rstd));
                head[i] = a * cos[i] - b * sin[i];
                head[half + i] = b * cos[i] + a * sin[i];
            }
        }
    });
}

pub(super) fn bwd(key: QkNormBwd, p: &qk_norm_bwd_params, views: &mut Views<'_>) {
    let (d, half) = (key.d as usize, key.d as usize / 2);
    let (query_heads, heads) = (p.query_heads as usize, (p.query_heads + p.key_heads) as usize);
    let (rows, row_width) = (p.rows as usize, p.row_heads as usize * d);
    let gamma = key.gamma.of(views.load("gamma"));
    let raw = views.load("raw");
    let angles = Angles::read(views, half);
    let partial = views.write::<f32>("dgamma_partial");
    let mut dx = views.store("dx");
    let groups = dx.par_chunks_mut(rows * row_width).zip(partial.par_chunks_mut(2 * d)).enumerate();
    groups.for_each(|(group, (dx, partial))| {
        let mut dgamma = vec![0.0f64; 2 * d];
        for (row, dx) in dx.chunks_mut(row_width).enumerate() {
            let token = group * rows + row;
            let [cos, sin] = angles.of(token);
            for (index, dx) in dx.chunks_mut(d).take(heads).enumerate() {
                let of_keys = usize::from(index >= query_heads) * d;
                let (gamma, dgamma) = (&gamma[of_keys..][..d], &mut dgamma[of_keys..][..d]);
                let x = &raw[(token * heads + index) * d..][..d];
                let rstd = rstd(x, p.eps);
                rotate_back(dx, cos, sin);
                let mean = mean(gamma, dx, x, rstd);
                for i in 0..d {
                    let n = x[i] * rstd;
                    dgamma[i] += f64::from(dx[i] * n);
                    dx[i] = rstd * (gamma[i] * dx[i] - n * mean);
                }
            }
        }
        partial.iter_mut().zip(&dgamma).for_each(|(partial, sum)| *partial = *sum as f32);
    });
}

pub(super) fn dgrad(key: QkNormDgrad, p: &qk_norm_dgrad_params, views: &mut Views<'_>) {
    let (d, half) = (key.d as usize, key.d as usize / 2);
    let (query_heads, heads) = (p.query_heads as usize, (p.query_heads + p.key_heads) as usize);
    let gamma = key.gamma.of(views.load("gamma"));
    let raw = views.load("raw");
    let angles = Angles::read(views, half);
    let mut dx = views.store("dx");
    dx.par_chunks_mut(p.row_heads as usize * d).enumerate().for_each(|(token, row)| {
        let [cos, sin] = angles.of(token);
        for (index, dx) in row.chunks_mut(d).take(heads).enumerate() {
            let gamma = &gamma[usize::from(index >= query_heads) * d..][..d];
            let x = &raw[(token * heads + index) * d..][..d];
            let rstd = rstd(x, p.eps);
            rotate_back(dx, cos, sin);
            let mean = mean(gamma, dx, x, rstd);
            for i in 0..d {
                dx[i] = rstd * (gamma[i] * dx[i] - x[i] * rstd * mean);
            }
        }
    });
}
