use precast_kernels::abi::{post_norm_fwd_params, rmsnorm_bwd_params, rmsnorm_fwd_params};

use super::calculus::{dot, dots, sum};
use super::launch::Launch;

/// Rows divided by their root mean square, times `gamma`; and the divisors' inverses.
pub fn normalized(x: &[f64], gamma: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let h = gamma.len();
    let rstd: Vec<f64> = x.chunks(h).map(|row| 1.0 / (dot(row, row) / h as f64 + eps).sqrt()).collect();
    let rows = x.chunks(h).zip(&rstd);
    (rows.flat_map(|(row, rstd)| row.iter().zip(gamma).map(move |(x, gamma)| gamma * x * rstd)).collect(), rstd)
}

/// Returns the factors of rows from the weights of a norm.
pub fn gamma(launch: &Launch) -> Vec<f64> {
    gamma_of(launch, "gamma")
}

fn gamma_of(launch: &Launch, weight: &str) -> Vec<f64> {
    let one_plus = launch.goes("gamma=1+w", launch.case.key.text().contains("gamma=1+w"));
    launch.before(weight).into_iter().map(|weight| if one_plus { 1.0 + weight } else { weight }).collect()
}

pub fn fwd(launch: &mut Launch) {
    let rmsnorm_fwd_params { eps, .. } = launch.params();
    let mut x = launch.before("x");
    if launch.flag("residual") {
        x = sum(&x, &launch.before("delta"));
        launch.is("sum", &x);
    }
    let (y, rstd) = normalized(&x, &gamma(launch), f64::from(eps));
    launch.is("y", &y);
    launch.is("rstd", &rstd);
}

pub fn post(launch: &mut Launch) {
    let post_norm_fwd_params { eps, .. } = launch.params();
    let (normed, rstd) = normalized(&launch.before("branch"), &gamma(launch), f64::from(eps));
    let stream = sum(&launch.before("x"), &normed);
    launch.is("rstd", &rstd);
    launch.is("sum", &stream);
    if launch.flag("next") {
        let (y, rstd) = normalized(&stream, &gamma_of(launch, "next_gamma"), f64::from(eps));
        launch.is("next_rstd", &rstd);
        launch.is("y", &y);
    }
}

/// The eps of the forward passes that backward passes follow.
const EPS: f64 = 1e-3;

pub fn dgrad(launch: &mut Launch) {
    let (x, dy, gamma) = (launch.before("x"), launch.before("dy"), gamma(launch));
    launch.set("rstd", &normalized(&x, &gamma, EPS).1);
    let residual = if launch.flag("residual") { launch.before("dresidual") } else { vec![0.0; x.len()] };
    let h = gamma.len();
    launch.is_gradient("dx", &x, |x| sum(&dots(&normalized(x, &gamma, EPS).0, &dy, h), &dots(x, &residual, h)));
}

pub fn bwd(launch: &mut Launch) {
    dgrad(launch);
    let rmsnorm_bwd_params { tokens, rows, .. } = launch.params();
    let (x, dy, gamma) = (launch.before("x"), launch.before("dy"), gamma(launch));
    let (h, group) = (gamma.len(), rows as usize * gamma.len());
    launch.is_gradient("dgamma_partial", &gamma.repeat(tokens.div_ceil(rows) as usize), |gammas| {
        let groups = gammas.chunks(h).zip(x.chunks(group).zip(dy.chunks(group)));
        groups.map(|(gamma, (x, dy))| dot(&normalized(x, gamma, EPS).0, dy)).collect()
    });
}
