use rayon::prelude::*;

use super::{QkNormAt, QkNormBwd, QkNormDgrad, QkNormFwd};
use crate::abi::{qk_norm_at_params, qk_norm_bwd_params, qk_norm_dgrad_params, qk_norm_fwd_params};
use crate::host::Views;
use crate::rmsnorm::mean;

/// Returns one over the root of the mean square.
fn rstd(head: &[f32], eps: f32) -> f32 {
    let square: f64 = head.iter().map(|x| f64::from(x * x)).sum();
    1.0 / ((square / head.len() as f64) as f32 + eps).sqrt()
}

/// Returns the gradient of a head before its rotation, in place.
fn rotate_back(dy: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (first, second) = dy.split_at_mut(cos.len());
    for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
        (*a, *b) = (*a * cos + *b * sin, *b * cos - *a * sin);
    }
}

/// Heads of rows, queries before keys.
struct Heads {
    d: usize,
    queries: usize,
    all: usize,
    /// Heads of a row, values' included.
    of_row: usize,
    eps: f32,
}

impl Heads {
    /// Normalizes those of `x`, and rotates them by the angles of their row's position.
    fn normalize(&self, x: &mut [f32], views: &mut Views<'_>, position: impl Fn(usize) -> usize + Sync) {
        let (d, half) = (self.d, self.d / 2);
        let gamma = views.load("gamma");
        let [cos, sin] = ["cos", "sin"].map(|table| views.read::<f32>(table));
        x.par_chunks_mut(self.of_row * d).enumerate().for_each(|(row, heads)| {
            let position = position(row);
            let (cos, sin) = (&cos[position * half..][..half], &sin[position * half..][..half]);
            for (index, head) in heads.chunks_mut(d).take(self.all).enumerate() {
                let gamma = &gamma[usize::from(index >= self.queries) * d..][..d];
                let rstd = rstd(head, self.eps);
                for i in 0..half {
                    let (a, b) = (gamma[i] * (head[i] * rstd), gamma[half + i] * (head[half + i] * rstd));
                    head[i] = a * cos[i] - b * sin[i];
                    head[half + i] = b * cos[i] + a * sin[i];
                }
            }
        });
    }
}

pub(super) fn fwd(key: QkNormFwd, p: &qk_norm_fwd_params, views: &mut Views<'_>) {
    let (queries, all) = (p.query_heads as usize, (p.query_heads + p.key_heads) as usize);
    let heads = Heads { d: key.d as usize, queries, all, of_row: p.row_heads as usize, eps: p.eps };
    let mut x = views.store("x");
    if key.keep {
        let mut raw = views.store("raw");
        let rows = x.par_chunks(heads.of_row * heads.d);
        let kept = all * heads.d;
        raw.par_chunks_mut(kept).zip(rows).for_each(|(raw, row)| raw.copy_from_slice(&row[..kept]));
    }
    heads.normalize(&mut x, views, |token| token % p.seq_len as usize);
}

pub(super) fn at(key: QkNormAt, p: &qk_norm_at_params, views: &mut Views<'_>) {
    let (queries, all) = (p.query_heads as usize, (p.query_heads + p.key_heads) as usize);
    let heads = Heads { d: key.d as usize, queries, all, of_row: p.row_heads as usize, eps: p.eps };
    let positions = views.read::<u32>("position");
    let mut x = views.store("x");
    heads.normalize(&mut x, views, |row| positions[row] as usize);
}

pub(super) fn bwd(key: QkNormBwd, p: &qk_norm_bwd_params, views: &mut Views<'_>) {
    let (d, half) = (key.d as usize, key.d as usize / 2);
    let (query_heads, heads) = (p.query_heads as usize, (p.query_heads + p.key_heads) as usize);
    let (rows, row_width) = (p.rows as usize, p.row_heads as usize * d);
    let gamma = views.load("gamma");
    let raw = views.load("raw");
    let [cos, sin] = ["cos", "sin"].map(|table| views.read::<f32>(table));
    let partial = views.write::<f32>("dgamma_partial");
    let mut dx = views.store("dx");
    let groups = dx.par_chunks_mut(rows * row_width).zip(partial.par_chunks_mut(2 * d)).enumerate();
    groups.for_each(|(group, (dx, partial))| {
        let mut dgamma = vec![0.0f64; 2 * d];
        for (row, dx) in dx.chunks_mut(row_width).enumerate() {
            let token = group * rows + row;
            let position = token % p.seq_len as usize;
            let (cos, sin) = (&cos[position * half..][..half], &sin[position * half..][..half]);
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
    let gamma = views.load("gamma");
    let raw = views.load("raw");
    let [cos, sin] = ["cos", "sin"].map(|table| views.read::<f32>(table));
    let mut dx = views.store("dx");
    dx.par_chunks_mut(p.row_heads as usize * d).enumerate().for_each(|(token, row)| {
        let position = token % p.seq_len as usize;
        let (cos, sin) = (&cos[position * half..][..half], &sin[position * half..][..half]);
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
