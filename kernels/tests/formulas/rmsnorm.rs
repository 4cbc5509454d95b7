use precast_kernels::Key;
use precast_kernels::abi::{rmsnorm_bwd_params, rmsnorm_dgrad_params, rmsnorm_fwd_params};

use super::calculus::{dot, gradient};
use super::launch::{Launch, field, size};

/// Rows divided by their root mean square, times `gamma`; and the divisors' inverses.
fn normalized(x: &[f64], gamma: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let h = gamma.len();
    let rstd: Vec<f64> = x.chunks(h).map(|row| 1.0 / (dot(row, row) / h as f64 + eps).sqrt()).collect();
    let rows = x.chunks(h).zip(&rstd);
    (rows.flat_map(|(row, rstd)| row.iter().zip(gamma).map(move |(x, gamma)| gamma * x * rstd)).collect(), rstd)
}

pub fn fwd(key: &Key) {
    let launch = Launch::new(key, rmsnorm_fwd_params { tokens: 5, eps: 1e-2, ..Default::default() });
    let mut x = launch.before("x");
    if field(key, "residual") == "true" {
        x.iter_mut().zip(launch.before("delta")).for_each(|(x, delta)| *x += delta);
        launch.is("sum", &x);
    }
    let (y, rstd) = normalized(&x, &launch.before("gamma"), f64::from(1e-2f32));
    launch.is("y", &y);
    launch.is("rstd", &rstd);
}

pub fn bwd(key: &Key) {
    const EPS: f64 = 1e-3;
    let h = size(key, "h");
    let launch = Launch::with(key, rmsnorm_bwd_params { tokens: 5, rows: 2, ..Default::default() }, |launch| {
        vec![("rstd", normalized(&launch.before("x"), &launch.before("gamma"), EPS).1)]
    });
    let (x, dy, gamma) = (launch.before("x"), launch.before("dy"), launch.before("gamma"));
    // Rows do not mix: a row's gradient follows from the row alone.
    let rows = x.chunks(h).zip(dy.chunks(h));
    let mut dx: Vec<f64> = rows.flat_map(|(x, dy)| gradient(x, |x| dot(&normalized(x, &gamma, EPS).0, dy))).collect();
    if field(key, "residual") == "true" {
        dx.iter_mut().zip(launch.before("dresidual")).for_each(|(dx, residual)| *dx += residual);
    }
    launch.is("dx", &dx);
    let groups = x.chunks(2 * h).zip(dy.chunks(2 * h));
    let dgamma = groups.flat_map(|(x, dy)| gradient(&gamma, |gamma| dot(&normalized(x, gamma, EPS).0, dy)));
    launch.is("dgamma_partial", &dgamma.collect::<Vec<_>>());
}

pub fn dgrad(key: &Key) {
    const EPS: f64 = 1e-3;
    let h = size(key, "h");
    let launch = Launch::with(key, rmsnorm_dgrad_params { tokens: 5, ..Default::default() }, |launch| {
        vec![("rstd", normalized(&launch.before("x"), &launch.before("gamma"), EPS).1)]
    });
    let (x, dy, gamma) = (launch.before("x"), launch.before("dy"), launch.before("gamma"));
    let rows = x.chunks(h).zip(dy.chunks(h));
    let mut dx: Vec<f64> = rows.flat_map(|(x, dy)| gradient(x, |x| dot(&normalized(x, &gamma, EPS).0, dy))).collect();
    if field(key, "residual") == "true" {
        dx.iter_mut().zip(launch.before("dresidual")).for_each(|(dx, residual)| *dx += residual);
    }
    launch.is("dx", &dx);
}
