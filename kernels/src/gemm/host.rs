use std::ops::Range;

use rayon::prelude::*;

use crate::abi::{
    GemmFwd, GemmSwiglu, gemm_dgrad_params, gemm_fwd_params, gemm_swiglu_params, gemm_wgrad_params, micro_scalars,
};
use crate::host::{Matrix, Output, Threads, Views, matmul, round_to, vectorized};
use crate::{Dtype, Flag, Format};

/// Depth up to which sums of products of 8-bit values are exact in f32, in any order: 1024 x 127^2 < 2^24.
const EXACT_DEPTH: usize = 1024;

/// Computes `y = x w^T` of 8-bit values, y [m, n], x [m, k], w [n, k]: exact sums, rounded once.
fn exact(y: &mut [f32], x: &[i8], w: &[i8], [m, n, k]: [usize; 3]) {
    let widened = |values: &[i8]| -> Vec<f32> { values.par_iter().map(|value| f32::from(*value)).collect() };
    let (x, w) = (widened(x), widened(w));
    let mut sums = vec![0i32; y.len()];
    for first in (0..k).step_by(EXACT_DEPTH) {
        let depth = EXACT_DEPTH.min(k - first);
        let (x, w) = (Matrix::rows(&x[first..], m, depth, k), Matrix::rows(&w[first..], n, depth, k));
        matmul(y, n, x, w.t(), Output::Overwrite, Threads::All);
        sums.par_iter_mut().zip(&*y).for_each(|(sum, part)| *sum += *part as i32);
    }
    y.par_iter_mut().zip(&sums).for_each(|(y, sum)| *y = *sum as f32);
}

/// Returns the rows that each matrix multiplies: all by the one, or those of the tiles that are listed.
///
/// The first entry of the list is their number.
fn tiles(experts: Flag, rows: usize, views: &mut Views<'_>) -> Vec<(usize, Range<usize>)> {
    if !experts.is_set() {
        return vec![(0, 0..rows)];
    }
    let (count, tiles) = views.read::<u32>("tiles").split_first_chunk::<4>().expect("the number of tiles");
    let tiles = tiles.chunks_exact(4).map(|tile| [tile[0], tile[1], tile[2]].map(|it| it as usize));
    tiles.map(|[expert, first, end]| (expert, first..end)).take(count[0] as usize).collect()
}

/// Computes `y = x w^T`, y [m, n], with both inputs in one format, by the matrix of each row's expert if there are
/// some; returns the rows that are computed.
fn multiply(
    y: &mut [f32],
    (format, experts): (Format, Flag),
    [m, n, k]: [usize; 3],
    views: &mut Views<'_>,
) -> Vec<Range<usize>> {
    let tiles = tiles(experts, m, views);
    let computed = tiles.iter().map(|(_, rows)| rows.clone()).collect();
    if format != Dtype::I8 {
        let (x, w) = (views.load("x"), views.load("w"));
        for (expert, rows) in tiles {
            let (x, w) = (&x[rows.start * k..rows.end * k], &w[expert * n * k..][..n * k]);
            let (x, w) = (Matrix::rows(x, rows.len(), k, k), Matrix::rows(w, n, k, k).t());
            matmul(&mut y[rows.start * n..rows.end * n], n, x, w, Output::Overwrite, Threads::All);
        }
        return computed;
    }
    let (x, w) = (views.read::<i8>("x"), views.read::<i8>("w"));
    let (x_scale, w_scale) = (views.read::<f32>("x_scale"), views.read::<f32>("w_scale"));
    for (expert, rows) in tiles {
        let y = &mut y[rows.start * n..rows.end * n];
        exact(y, &x[rows.start * k..rows.end * k], &w[expert * n * k..][..n * k], [rows.len(), n, k]);
        let w_scale = &w_scale[expert * n..][..n];
        y.par_chunks_mut(n).zip(&x_scale[rows]).for_each(|(row, x_scale)| {
            row.iter_mut().zip(w_scale).for_each(|(y, w_scale)| *y *= x_scale * w_scale);
        });
    }
    computed
}

pub(super) fn fwd(key: GemmFwd, p: &gemm_fwd_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let bias = key.bias.then(|| views.load("bias"));
    let residual = key.residual.then(|| views.load("residual"));
    let mut y = views.store("y");
    multiply(&mut y, (key.x, key.experts), [m, n, k], views);
    if let Some(bias) = bias {
        y.par_chunks_mut(n).for_each(|row| row.iter_mut().zip(&bias[..]).for_each(|(y, bias)| *y += bias));
    }
    if let Some(residual) = residual {
        y.par_iter_mut().zip(&residual[..]).for_each(|(y, residual)| *y += residual);
    }
}

pub(super) fn swiglu(key: GemmSwiglu, p: &gemm_swiglu_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let bias = key.bias.then(|| views.load("bias"));
    let mut y = views.store("y");
    let mut gate_up = vec![0.0; 2 * m * n];
    let computed = multiply(&mut gate_up, (key.x, key.experts), [m, 2 * n, k], views);
    let is_computed = |row| computed.iter().any(|rows| rows.contains(&row));
    let dtype = key.x.output().dtype().expect("outputs are dense");
    y.par_chunks_mut(n).zip(gate_up.par_chunks_mut(2 * n)).enumerate().for_each(|(row, (y, gate_up))| {
        if !is_computed(row) {
            return;
        }
        if let Some(bias) = &bias {
            gate_up.iter_mut().zip(&bias[..]).for_each(|(sum, bias)| *sum += bias);
        }
        gate_up.iter_mut().for_each(|sum| *sum = round_to(dtype, *sum));
        let (gate, up) = gate_up.split_at(n);
        vectorized(|| {
            for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
                *y = gate * key.gate.sigmoid(*gate) * up;
            }
        });
    });
}

pub(super) fn dgrad(p: &gemm_dgrad_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let dy = views.load("dy");
    let w = views.load("w");
    let mut dx = views.store("dx");
    matmul(&mut dx, k, Matrix::rows(&dy, m, n, n), Matrix::rows(&w, n, k, k), Output::Overwrite, Threads::All);
}

pub(super) fn wgrad(p: &gemm_wgrad_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let dy = views.load("dy");
    let x = views.load("x");
    let micro = views.read::<micro_scalars>("micro")[0];
    let dw = views.write::<f32>("dw");
    let output = if p.accumulate != 0 || micro.accumulate != 0 { Output::Accumulate } else { Output::Overwrite };
    matmul(dw, k, Matrix::rows(&dy, m, n, n).t(), Matrix::rows(&x, m, k, k), output, Threads::All);
}
