use precast_kernels::Key;
use precast_kernels::abi::{gemm_dgrad_params, gemm_fwd_params, gemm_swiglu_params, gemm_wgrad_params};

use super::calculus::{dot, gradient, product};
use super::launch::{Launch, field};
use super::swiglu::gated;

/// Values to add to a row of features, or none.
fn added(launch: &Launch, key: &Key, name: &'static str) -> Option<Vec<f64>> {
    (field(key, name) == "true").then(|| launch.before(name))
}

pub fn fwd(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    let launch = Launch::new(key, gemm_fwd_params { m, n, k, ..Default::default() });
    let mut y = product(&launch.before("x"), &launch.before("w"), k as usize);
    if let Some(bias) = added(&launch, key, "bias") {
        y.iter_mut().zip(bias.iter().cycle()).for_each(|(y, bias)| *y += bias);
    }
    if let Some(residual) = added(&launch, key, "residual") {
        y.iter_mut().zip(residual).for_each(|(y, residual)| *y += residual);
    }
    launch.is("y", &y);
}

pub fn swiglu(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    let launch = Launch::new(key, gemm_swiglu_params { m, n, k, ..Default::default() });
    let mut gate_up = product(&launch.before("x"), &launch.before("w"), k as usize);
    if let Some(bias) = added(&launch, key, "bias") {
        gate_up.iter_mut().zip(bias.iter().cycle()).for_each(|(value, bias)| *value += bias);
    }
    launch.is("y", &gate_up.chunks(2 * n as usize).flat_map(gated).collect::<Vec<_>>());
}

pub fn dgrad(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    let launch = Launch::new(key, gemm_dgrad_params { m, n, k, ..Default::default() });
    let (dy, w) = (launch.before("dy"), launch.before("w"));
    let x = vec![0.5; (m * k) as usize];
    launch.is("dx", &gradient(&x, |x| dot(&product(x, &w, k as usize), &dy)));
}

pub fn wgrad(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    for accumulate in [0, 1] {
        let launch = Launch::new(key, gemm_wgrad_params { m, n, k, accumulate, ..Default::default() });
        let (dy, x, old) = (launch.before("dy"), launch.before("x"), launch.before("dw"));
        let mut dw = gradient(&vec![0.5; old.len()], |w| dot(&product(&x, w, k as usize), &dy));
        if accumulate == 1 || launch.micro().1 {
            dw.iter_mut().zip(old).for_each(|(dw, old)| *dw += old);
        }
        launch.is("dw", &dw);
    }
}
