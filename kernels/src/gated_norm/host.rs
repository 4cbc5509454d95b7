use rayon::prelude::*;

use super::{GatedNormBwd, GatedNormDgrad, GatedNormFwd};
use crate::Dtype;
use crate::abi::{gated_norm_bwd_params, gated_norm_dgrad_params, gated_norm_fwd_params};
use crate::host::{Views, round_to, sigmoid};
use crate::rmsnorm::{mean, rstd};

pub(super) fn fwd(key: GatedNormFwd, p: &gated_norm_fwd_params, views: &mut Views<'_>) {
    let (d, width) = (key.d as usize, (p.heads * key.d) as usize);
    let (x, gates, gamma) = (views.load("x"), views.load("gates"), views.load("gamma"));
    let mut y = views.store("y");
    y.par_chunks_mut(width).zip(x.par_chunks(width)).enumerate().for_each(|(token, (y, x))| {
        let gates = &gates[token * p.gate_columns as usize + p.column as usize..][..width];
        for ((y, x), gates) in y.chunks_mut(d).zip(x.chunks(d)).zip(gates.chunks(d)) {
            let rstd = rstd(x, p.eps);
            for (i, y) in y.iter_mut().enumerate() {
                *y = gamma[i] * round_to(key.x, x[i] * rstd) * (gates[i] * sigmoid(gates[i]));
            }
        }
    });
}

/// Writes the gradients of a token's heads and gates; calls `each` with every element of a head and its share of the
/// gradient of gamma.
fn gradient(
    dtype: Dtype,
    (x, gates, gamma, dy): (&[f32], &[f32], &[f32], &[f32]),
    (dx, dgates): (&mut [f32], &mut [f32]),
    eps: f32,
    mut each: impl FnMut(usize, f32),
) {
    let d = gamma.len();
    let mut dn = vec![0.0; d];
    for head in (0..x.len()).step_by(d) {
        let [x, gates, dy] = [x, gates, dy].map(|all| &all[head..][..d]);
        let (dx, dgates) = (&mut dx[head..][..d], &mut dgates[head..][..d]);
        let rstd = rstd(x, eps);
        for i in 0..d {
            let (n, s) = (round_to(dtype, x[i] * rstd), sigmoid(gates[i]));
            dgates[i] = dy[i] * gamma[i] * n * (s * (1.0 + gates[i] * (1.0 - s)));
            dn[i] = dy[i] * (gates[i] * s);
            each(i, dn[i] * n);
        }
        let mean = mean(gamma, &dn, x, rstd);
        for i in 0..d {
            dx[i] = rstd * (gamma[i] * dn[i] - x[i] * rstd * mean);
        }
    }
}

pub(super) fn bwd(key: GatedNormBwd, p: &gated_norm_bwd_params, views: &mut Views<'_>) {
    let (d, width, rows) = (key.d as usize, (p.heads * key.d) as usize, p.rows as usize);
    let (columns, column) = (p.gate_columns as usize, p.column as usize);
    let loaded = ["x", "gates", "gamma", "dy"].map(|name| views.load(name));
    let [x, gates, gamma, dy] = &loaded;
    let partial = views.write::<f32>("dgamma_partial");
    let [mut dx, mut dgates] = ["dx", "dgates"].map(|name| views.store(name));
    let groups = dx.par_chunks_mut(rows * width).zip(dgates.par_chunks_mut(rows * columns));
    groups.zip(partial.par_chunks_mut(d)).enumerate().for_each(|(group, ((dx, dgates), partial))| {
        let mut dgamma = vec![0.0f64; d];
        for (row, (dx, dgates)) in dx.chunks_mut(width).zip(dgates.chunks_mut(columns)).enumerate() {
            let token = group * rows + row;
            let of_row = |all: &'_ [f32]| all[token * width..][..width].to_vec();
            let gates = &gates[token * columns + column..][..width];
            let inputs = (&of_row(x)[..], gates, &gamma[..], &of_row(dy)[..]);
            let add = |i: usize, share: f32| dgamma[i] += f64::from(share);
            gradient(key.x, inputs, (dx, &mut dgates[column..][..width]), p.eps, add);
        }
        partial.iter_mut().zip(&dgamma).for_each(|(partial, sum)| *partial = *sum as f32);
    });
}

pub(super) fn dgrad(key: GatedNormDgrad, p: &gated_norm_dgrad_params, views: &mut Views<'_>) {
    let width = (p.heads * key.d) as usize;
    let (columns, column) = (p.gate_columns as usize, p.column as usize);
    let loaded = ["x", "gates", "gamma", "dy"].map(|name| views.load(name));
    let [x, gates, gamma, dy] = &loaded;
    let [mut dx, mut dgates] = ["dx", "dgates"].map(|name| views.store(name));
    let rows = dx.par_chunks_mut(width).zip(dgates.par_chunks_mut(columns)).enumerate();
    rows.for_each(|(token, (dx, dgates))| {
        let [x, dy] = [x, dy].map(|all| &all[token * width..][..width]);
        let gates = &gates[token * columns + column..][..width];
        gradient(key.x, (x, gates, gamma, dy), (dx, &mut dgates[column..][..width]), p.eps, |_, _| ());
    });
}
