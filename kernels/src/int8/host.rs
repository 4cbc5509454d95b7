use rayon::prelude::*;

use super::rotation;
use crate::Dtype;
use crate::abi::{
    int8_columns_params, int8_fwd_params, int8_rmsnorm_fwd_params, int8_rmsnorm_params, int8_swiglu_params,
    rmsnorm_bwd_params,
};
use crate::host::{Matrix, Store, Views, matmul, round_to, sigmoid, vectorized};
use crate::rmsnorm::{self, RmsnormBwd, RmsnormDgrad, RmsnormFwd, add_residual, rstd};

/// The row times 1 / r and the Hadamard matrix of each block of r: the Walsh-Hadamard transform, smallest strides first. The factor comes
/// first: no sum overflows.
fn rotate(row: &mut [f32], r: usize) {
    let factor = 1.0 / r as f32;
    vectorized(|| row.iter_mut().for_each(|value| *value *= factor));
    for block in row.chunks_exact_mut(r) {
        let mut stride = 1;
        while stride < r {
            for pair in block.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                low.iter_mut().zip(high).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
            }
            stride *= 2;
        }
    }
}

/// Rotates a row, and writes its values; returns its scale.
fn quantize_row(row: &mut [f32], q: &mut [i8], r: usize) -> f32 {
    const LEAST: f32 = 7.888_609e-31; // 2^-100
    rotate(row, r);
    let largest =
        row.iter().fold(0.0f32, |largest, value| if value.is_nan() { *value } else { largest.max(value.abs()) });
    let finite = row.iter().all(|value| value.is_finite());
    if !finite || largest < LEAST {
        q.fill(0);
        return if finite { 0.0 } else { f32::NAN };
    }
    let inverse = f64::from(127.0 / largest);
    // A product of two f32 is exact in f64.
    q.iter_mut().zip(row.iter()).for_each(|(q, value)| *q = (f64::from(*value) * inverse).round_ties_even() as i8);
    largest * ((r as f32).sqrt() / 127.0)
}

pub(super) fn quantize(k: u32, views: &mut Views<'_>) {
    let x = views.load("x");
    let q = views.write::<i8>("q");
    let scale = views.write::<f32>("scale");
    let (columns, r) = (k as usize, rotation(k).expect("no variant admits other rows") as usize);
    q.par_chunks_mut(columns).zip(x.par_chunks(columns)).zip(scale).for_each(|((q, x), scale)| {
        *scale = quantize_row(&mut x.to_vec(), q, r);
    });
}

pub(super) fn columns(n: u32, p: &int8_columns_params, views: &mut Views<'_>) {
    let x = views.load("x");
    let q = views.write::<i8>("q");
    let scale = views.write::<f32>("scale");
    let (n, r) = (n as usize, rotation(n).expect("no variant admits other columns") as usize);
    q.par_chunks_mut(n).zip(scale).enumerate().for_each(|(column, (q, scale))| {
        let mut row: Vec<f32> = x.iter().skip(column).step_by(p.columns as usize).copied().collect();
        *scale = quantize_row(&mut row, q, r);
    });
}

pub(super) fn rmsnorm(key: RmsnormFwd, p: &int8_rmsnorm_params, views: &mut Views<'_>) {
    let (h, r) = (key.h as usize, rotation(key.h).expect("no variant admits other rows") as usize);
    let gamma = views.load("gamma");
    let x = views.load("x");
    let q = views.write::<i8>("q");
    let scale = views.write::<f32>("scale");
    let sum = key.residual.then(|| add_residual(&x, key.x, views));
    let rows = sum.as_deref().unwrap_or(&x);
    q.par_chunks_mut(h).zip(rows.par_chunks(h)).zip(scale).for_each(|((q, x), scale)| {
        let rstd = rstd(x, p.eps);
        let mut row: Vec<f32> = x.iter().zip(&gamma[..]).map(|(x, gamma)| gamma * (x * rstd)).collect();
        *scale = quantize_row(&mut row, q, r);
    });
}

pub(super) fn rmsnorm_fwd(key: RmsnormFwd, p: &int8_rmsnorm_fwd_params, views: &mut Views<'_>) {
    let (h, r) = (key.h as usize, rotation(key.h).expect("no variant admits other rows") as usize);
    let gamma = views.load("gamma");
    let x = views.load("x");
    let mut y = views.store("y");
    let (q, scales) = (views.write::<i8>("q"), views.write::<f32>("scale"));
    let rstds = views.write::<f32>("rstd");
    let sum = key.residual.then(|| add_residual(&x, key.x, views));
    let rows = sum.as_deref().unwrap_or(&x).par_chunks(h).zip(y.par_chunks_mut(h));
    rows.zip(q.par_chunks_mut(h)).zip(scales.par_iter_mut().zip(rstds)).for_each(|(((x, y), q), (scale, stored))| {
        let rstd = rstd(x, p.eps);
        *stored = rstd;
        y.iter_mut().zip(x).zip(&gamma[..]).for_each(|((y, x), gamma)| *y = round_to(key.x, gamma * (x * rstd)));
        *scale = quantize_row(&mut y.to_vec(), q, r);
    });
}

/// Rounds the gradients of rows, stores and quantises them.
fn round_and_quantize(mut dx: Store<'_>, dtype: Dtype, h: u32, views: &mut Views<'_>) {
    let (h, r) = (h as usize, rotation(h).expect("no variant admits other rows") as usize);
    let (q, scales) = (views.write::<i8>("q"), views.write::<f32>("scale"));
    dx.par_chunks_mut(h).zip(q.par_chunks_mut(h)).zip(scales).for_each(|((dx, q), scale)| {
        dx.iter_mut().for_each(|dx| *dx = round_to(dtype, *dx));
        *scale = quantize_row(&mut dx.to_vec(), q, r);
    });
}

pub(super) fn rmsnorm_bwd(key: RmsnormBwd, rows: u32, views: &mut Views<'_>) {
    let dx = rmsnorm::bwd(key, &rmsnorm_bwd_params { rows, ..Default::default() }, views);
    round_and_quantize(dx, key.x, key.h, views);
}

pub(super) fn rmsnorm_dgrad(key: RmsnormDgrad, views: &mut Views<'_>) {
    let dx = rmsnorm::dgrad(key, views);
    round_and_quantize(dx, key.x, key.h, views);
}

pub(super) fn gated(n: u32, kept: bool, views: &mut Views<'_>) {
    let (n, r) = (n as usize, rotation(n).expect("no variant admits other rows") as usize);
    let gate_up = views.load("gate_up");
    let (q, scales) = (views.write::<i8>("q"), views.write::<f32>("scale"));
    let mut y = vec![0.0; q.len()];
    let rows = gate_up.par_chunks(2 * n).zip(y.par_chunks_mut(n));
    rows.zip(q.par_chunks_mut(n)).zip(scales).for_each(|(((gate_up, y), q), scale)| {
        let (gate, up) = gate_up.split_at(n);
        for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
            *y = round_to(Dtype::Bf16, gate * sigmoid(*gate) * up);
        }
        *scale = quantize_row(&mut y.to_vec(), q, r);
    });
    if kept {
        views.store("y").copy_from_slice(&y);
    }
}

pub(super) fn gated_bwd(n: u32, views: &mut Views<'_>) {
    let (n, r) = (n as usize, rotation(2 * n).expect("no variant admits other rows") as usize);
    let (gate_up, dy) = (views.load("gate_up"), views.load("dy"));
    let mut dgate_up = views.store("dgate_up");
    let (q, scales) = (views.write::<i8>("q"), views.write::<f32>("scale"));
    let inputs = gate_up.par_chunks(2 * n).zip(dy.par_chunks(n));
    let outputs = dgate_up.par_chunks_mut(2 * n).zip(q.par_chunks_mut(2 * n)).zip(scales);
    inputs.zip(outputs).for_each(|((gate_up, dy), ((dgate_up, q), scale))| {
        let (gate, up) = gate_up.split_at(n);
        let (dgate, dup) = dgate_up.split_at_mut(n);
        for i in 0..n {
            let s = sigmoid(gate[i]);
            dgate[i] = round_to(Dtype::Bf16, dy[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s)));
            dup[i] = round_to(Dtype::Bf16, dy[i] * gate[i] * s);
        }
        *scale = quantize_row(&mut dgate_up.to_vec(), q, r);
    });
}

/// Depth whose sums of products are exact in f32, in any order: 1024 x 127^2 < 2^24.
const EXACT_DEPTH: usize = 1024;
/// Rows of x that are multiplied at a time: more take memory and save nothing.
const ROWS: usize = 256;

/// Calls `row(i, sums)` with the exact sums of each row i of `x w^T`: x [m, k], w [n, k].
fn products(x: &[i8], w: &[i8], [m, n, k]: [usize; 3], mut row: impl FnMut(usize, &[i32])) {
    let widened = |values: &[i8]| -> Vec<f32> { values.par_iter().map(|value| f32::from(*value)).collect() };
    let w = widened(w);
    for first in (0..m).step_by(ROWS) {
        let rows = ROWS.min(m - first);
        let x = widened(&x[first * k..][..rows * k]);
        let (mut part, mut sums) = (vec![0.0; rows * n], vec![0i32; rows * n]);
        for depth in (0..k).step_by(EXACT_DEPTH) {
            let columns = EXACT_DEPTH.min(k - depth);
            let (x, w) = (Matrix::rows(&x[depth..], rows, columns, k), Matrix::rows(&w[depth..], n, columns, k));
            matmul(&mut part, n, x, w.t(), false, true);
            sums.par_iter_mut().zip(&part).for_each(|(sum, part)| *sum += *part as i32);
        }
        sums.chunks_exact(n).enumerate().for_each(|(i, sums)| row(first + i, sums));
    }
}

pub(super) fn fwd(bias: bool, residual: bool, p: &int8_fwd_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let (x, w) = (views.read::<i8>("x"), views.read::<i8>("w"));
    let (x_scale, w_scale) = (views.read::<f32>("x_scale"), views.read::<f32>("w_scale"));
    let bias = bias.then(|| views.load("bias"));
    let residual = residual.then(|| views.load("residual"));
    let mut y = views.store("y");
    products(x, w, [m, n, k], |i, sums| {
        let y = &mut y[i * n..][..n];
        for ((y, sum), w_scale) in y.iter_mut().zip(sums).zip(w_scale) {
            *y = *sum as f32 * (x_scale[i] * w_scale);
        }
        if let Some(bias) = &bias {
            y.iter_mut().zip(&bias[..]).for_each(|(y, bias)| *y += bias);
        }
        if let Some(residual) = &residual {
            y.iter_mut().zip(&residual[i * n..]).for_each(|(y, residual)| *y += residual);
        }
    });
}

pub(super) fn swiglu(bias: bool, dtype: Dtype, p: &int8_swiglu_params, views: &mut Views<'_>) {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let (x, w) = (views.read::<i8>("x"), views.read::<i8>("w"));
    let (x_scale, w_scale) = (views.read::<f32>("x_scale"), views.read::<f32>("w_scale"));
    let bias = bias.then(|| views.load("bias"));
    let mut y = views.store("y");
    products(x, w, [m, 2 * n, k], |i, sums| {
        let side = |j: usize| {
            let value = sums[j] as f32 * (x_scale[i] * w_scale[j]);
            round_to(dtype, bias.as_ref().map_or(value, |bias| value + bias[j]))
        };
        for (j, y) in y[i * n..][..n].iter_mut().enumerate() {
            let (gate, up) = (side(j), side(n + j));
            *y = gate * sigmoid(gate) * up;
        }
    });
}
