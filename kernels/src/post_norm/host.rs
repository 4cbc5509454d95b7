use rayon::prelude::*;

use super::PostNormFwd;
use crate::abi::post_norm_fwd_params;
use crate::host::{Views, round_to};
use crate::int8::RowStore;
use crate::rmsnorm::rstd;

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
