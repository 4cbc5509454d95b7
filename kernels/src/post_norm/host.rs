use rayon::prelude::*;

use super::{PostNormBwd, PostNormFwd};
use crate::abi::{post_norm_bwd_params, post_norm_fwd_params};
use crate::host::{Views, round_to};
use crate::int8::RowStore;
use crate::rmsnorm::{mean, rstd};

pub(super) fn fwd(key: PostNormFwd, p: &post_norm_fwd_params, views: &mut Views<'_>) {
    let (h, is_kept) = (key.h as usize, key.out.is_dense());
    let mut unread = [0; 2].map(|_| vec![0.0; p.tokens as usize]);
    let [gamma, branch, x] = ["gamma", "branch", "x"].map(|name| views.load(name));
    let gamma = key.gamma.of(gamma);
    let mut sum = views.store("sum");
    let [own, next] = &mut unread;
    let rstds = if is_kept { views.write("rstd") } else { &mut own[..] };
    let rows = branch.par_chunks(h).zip(x.par_chunks(h));
    sum.par_chunks_mut(h).zip(rows).zip(rstds).for_each(|((sum, (branch, x)), stored)| {
        *stored = rstd(branch, p.eps);
        for i in 0..h {
            // The normalized branch is rounded before it is added, as if it were stored.
            sum[i] = round_to(key.x, x[i] + round_to(key.x, gamma[i] * (branch[i] * *stored)));
        }
    });
    if key.next {
        let gamma = key.gamma.of(views.load("next_gamma"));
        let rstds = if is_kept { views.write("next_rstd") } else { &mut next[..] };
        let mut y = RowStore::new(views, "y", key.out);
        y.par_chunks_mut(h).zip(sum.par_chunks(h)).zip(rstds).for_each(|((y, sum), stored)| {
            *stored = rstd(sum, p.eps);
            (0..h).for_each(|i| y[i] = gamma[i] * (sum[i] * *stored));
        });
    }
}

/// Returns the gradient of a row through its norm, and adds that of gamma to `dgamma`.
fn through(gamma: &[f32], dy: &[f32], x: &[f32], rstd: f32, dgamma: &mut [f32]) -> Vec<f32> {
    let mean = mean(gamma, dy, x, rstd);
    let of = |i: usize| {
        let n = x[i] * rstd;
        dgamma[i] += dy[i] * n;
        rstd * (gamma[i] * dy[i] - n * mean)
    };
    (0..x.len()).map(of).collect()
}

pub(super) fn bwd(key: PostNormBwd, p: &post_norm_bwd_params, views: &mut Views<'_>) {
    let (h, group) = (key.h as usize, p.rows as usize);
    let [gamma, next_gamma] = ["gamma", "next_gamma"].map(|name| key.gamma.of(views.load(name)));
    let [dy, dresidual, sum, branch] = ["dy", "dresidual", "sum", "branch"].map(|name| views.load(name));
    let [rstd, next_rstd] = ["rstd", "next_rstd"].map(|name| views.read::<f32>(name));
    let mut dx = views.store("dx");
    let mut dbranch = RowStore::new(views, "dbranch", key.out);
    let [own, next] = ["dgamma_partial", "dnext_gamma_partial"].map(|name| views.write::<f32>(name).par_chunks_mut(h));
    let outputs = dx.par_chunks_mut(group * h).zip(dbranch.par_chunks_mut(group * h)).zip(own.zip(next));
    outputs.enumerate().for_each(|(index, ((dx, dbranch), (own, next)))| {
        own.fill(0.0);
        next.fill(0.0);
        for (row, (dx, dbranch)) in dx.chunks_mut(h).zip(dbranch.chunks_mut(h)).enumerate() {
            let token = index * group + row;
            let of = |operand: &'_ [f32]| operand[token * h..][..h].to_vec();
            let through_next = through(&next_gamma, &of(&dy), &of(&sum), next_rstd[token], next);
            for ((dx, dresidual), own) in dx.iter_mut().zip(of(&dresidual)).zip(through_next) {
                // Rounded before it goes on to the branch, as if it were stored.
                *dx = round_to(key.x, dresidual + own);
            }
            dbranch.copy_from_slice(&through(&gamma, dx, &of(&branch), rstd[token], own));
        }
    });
}
