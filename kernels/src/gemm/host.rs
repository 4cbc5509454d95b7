use rayon::prelude::*;

use super::GemmFwd;
use crate::abi::{gemm_dgrad_params, gemm_fwd_params, gemm_wgrad_params, micro_scalars};
use crate::host::{Matrix, Views, matmul};

pub(super) fn fwd(key: GemmFwd, p: &gemm_fwd_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let x = views.load("x");
    let w = views.load("w");
    let bias = key.bias.then(|| views.load("bias"));
    let residual = key.residual.then(|| views.load("residual"));
    let mut y = views.store("y");
    matmul(&mut y, n, Matrix::rows(&x, m, k, k), Matrix::rows(&w, n, k, k).t(), false, true);
    if let Some(bias) = bias {
        y.par_chunks_mut(n).for_each(|row| row.iter_mut().zip(&bias[..]).for_each(|(y, bias)| *y += bias));
    }
    if let Some(residual) = residual {
        y.par_iter_mut().zip(&residual[..]).for_each(|(y, residual)| *y += residual);
    }
}

pub(super) fn dgrad(p: &gemm_dgrad_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let dy = views.load("dy");
    let w = views.load("w");
    let mut dx = views.store("dx");
    if p.splits > 1 {
        views.write::<f32>("partials").fill(0.0); // of no interest
    }
    matmul(&mut dx, k, Matrix::rows(&dy, m, n, n), Matrix::rows(&w, n, k, k), false, true);
}

pub(super) fn wgrad(p: &gemm_wgrad_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let dy = views.load("dy");
    let x = views.load("x");
    let micro = views.read::<micro_scalars>("micro")[0];
    let dw = views.write::<f32>("dw");
    let accumulate = p.accumulate != 0 || micro.accumulate != 0;
    matmul(dw, k, Matrix::rows(&dy, m, n, n).t(), Matrix::rows(&x, m, k, k), accumulate, true);
}
