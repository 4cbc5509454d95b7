use rayon::prelude::*;

use super::{RmsnormBwd, RmsnormDgrad, RmsnormFwd};
use crate::Dtype;
use crate::abi::{rmsnorm_bwd_params, rmsnorm_fwd_params};
use crate::host::{Store, Views, round_to};
use crate::int8::RowStore;

/// Returns the mean of `gamma dy n` over a row, with `n = x rstd`: the gradient's component along n, which
/// normalization removes.
pub(crate) fn mean(gamma: &[f32], dy: &[f32], x: &[f32], rstd: f32) -> f32 {
    let dot: f64 = (0..x.len()).map(|i| f64::from(gamma[i] * dy[i] * (x[i] * rstd))).sum();
    (dot / x.len() as f64) as f32
}

/// Returns 1 over the root mean square of a row.
pub(crate) fn rstd(x: &[f32], eps: f32) -> f32 {
    let square: f64 = x.iter().map(|x| f64::from(x * x)).sum();
    1.0 / ((square / x.len() as f64) as f32 + eps).sqrt()
}

/// Stores `sum = x + delta` and returns it, rounded first: the stored values are normalized.
fn add_residual<'a>(x: &[f32], dtype: Dtype, views: &mut Views<'a>) -> Store<'a> {
    let delta = views.load("delta");
    let mut sum = views.store("sum");
    sum.par_iter_mut().zip(x).zip(&delta[..]).for_each(|((sum, x), delta)| *sum = round_to(dtype, x + delta));
    sum
}

pub(super) fn fwd(key: RmsnormFwd, p: &rmsnorm_fwd_params, views: &mut Views<'_>) {
    let h = key.h as usize;
    let gamma = key.gamma.of(views.load("gamma"));
    let mut y = RowStore::new(views, "y", key.out);
    let mut unread = vec![0.0; if key.out.is_dense() { 0 } else { p.tokens as usize }];
    let rstds = if key.out.is_dense() { views.write("rstd") } else { &mut unread[..] };
    let x = views.load("x");
    let sum = key.residual.then(|| add_residual(&x, key.x, views));
    let rows = sum.as_deref().unwrap_or(&x);
    y.par_chunks_mut(h).zip(rows.par_chunks(h)).zip(rstds).for_each(|((y, x), stored)| {
        let rstd = rstd(x, p.eps);
        *stored = rstd;
        for ((y, x), gamma) in y.iter_mut().zip(x).zip(&gamma[..]) {
            *y = gamma * (x * rstd);
        }
    });
}

pub(super) fn bwd(key: RmsnormBwd, p: &rmsnorm_bwd_params, views: &mut Views<'_>) {
    let (h, group) = (key.h as usize, p.rows as usize * key.h as usize);
    let gamma = key.gamma.of(views.load("gamma"));
    let dy = views.load("dy");
    let x = views.load("x");
    let rstd = views.read::<f32>("rstd");
    let dresidual = key.residual.then(|| views.load("dresidual"));
    let mut dx = RowStore::new(views, "dx", key.out);
    let partial = views.write::<f32>("dgamma_partial");
    dx.par_chunks_mut(group).zip(partial.par_chunks_mut(h)).enumerate().for_each(|(index, (dx, partial))| {
        partial.fill(0.0);
        for (row, dx) in dx.chunks_mut(h).enumerate() {
            let row = index * p.rows as usize + row;
            let (dy, x) = (&dy[row * h..][..h], &x[row * h..][..h]);
            let rstd = rstd[row];
            let mean = mean(&gamma, dy, x, rstd);
            for i in 0..h {
                let n = x[i] * rstd;
                partial[i] += dy[i] * n;
                let own = rstd * (gamma[i] * dy[i] - n * mean);
                dx[i] = dresidual.as_ref().map_or(own, |d| d[row * h + i] + own);
            }
        }
    });
}

pub(super) fn dgrad(key: RmsnormDgrad, views: &mut Views<'_>) {
    let h = key.h as usize;
    let gamma = key.gamma.of(views.load("gamma"));
    let dy = views.load("dy");
    let x = views.load("x");
    let rstd = views.read::<f32>("rstd");
    let dresidual = key.residual.then(|| views.load("dresidual"));
    let mut dx = RowStore::new(views, "dx", key.out);
    dx.par_chunks_mut(h).enumerate().for_each(|(row, dx)| {
        let (dy, x) = (&dy[row * h..][..h], &x[row * h..][..h]);
        let rstd = rstd[row];
        let mean = mean(&gamma, dy, x, rstd);
        for i in 0..h {
            let own = rstd * (gamma[i] * dy[i] - x[i] * rstd * mean);
            dx[i] = dresidual.as_ref().map_or(own, |d| d[row * h + i] + own);
        }
    });
}
