use rayon::prelude::*;

use super::{GemmFwd, GemmSwiglu};
use crate::abi::{gemm_dgrad_params, gemm_fwd_params, gemm_swiglu_params, gemm_wgrad_params, micro_scalars};
use crate::host::{Matrix, Views, matmul, round_to, sigmoid, vectorized};

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

pub(super) fn swiglu(key: GemmSwiglu, p: &gemm_swiglu_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let x = views.load("x");
    let w = views.load("w");
    let bias = key.bias.then(|| views.load("bias"));
    let mut y = views.store("y");
    let mut gate_up = vec![0.0; 2 * m * n];
    matmul(&mut gate_up, 2 * n, Matrix::rows(&x, m, k, k), Matrix::rows(&w, 2 * n, k, k).t(), false, true);
    y.par_chunks_mut(n).zip(gate_up.par_chunks_mut(2 * n)).for_each(|(y, gate_up)| {
        if let Some(bias) = &bias {
            gate_up.iter_mut().zip(&bias[..]).for_each(|(sum, bias)| *sum += bias);
        }
        gate_up.iter_mut().for_each(|sum| *sum = round_to(key.x, *sum));
        let (gate, up) = gate_up.split_at(n);
        vectorized(|| {
            for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
                *y = gate * sigmoid(*gate) * up;
            }
        });
    });
}

pub(super) fn dgrad(p: &gemm_dgrad_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let dy = views.load("dy");
    let w = views.load("w");
    let mut dx = views.store("dx");
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
