use precast_kernels::abi::{swiglu_bwd_params, swiglu_fwd_params};

use super::calculus::dots;
use super::launch::Launch;

/// The activation of a launch's gate: `x sigmoid(x)`, or GELU by tanh.
pub fn activation(launch: &Launch) -> fn(f64) -> f64 {
    if launch.goes("gelu", launch.case.key.text().contains("gate=gelu_tanh")) {
        |x| 0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh())
    } else {
        |x| x / (1.0 + (-x).exp())
    }
}

/// `activation(gate) * up` of rows of n gates and then n ups.
pub fn gated(gate_up: &[f64], n: u32, activation: fn(f64) -> f64) -> Vec<f64> {
    let rows = gate_up.chunks(2 * n as usize).map(|row| row.split_at(n as usize));
    rows.flat_map(|(gate, up)| gate.iter().zip(up)).map(|(gate, up)| activation(*gate) * up).collect()
}

pub fn fwd(launch: &mut Launch) {
    let swiglu_fwd_params { n, .. } = launch.params();
    launch.is("y", &gated(&launch.before("gate_up"), n, activation(launch)));
}

pub fn bwd(launch: &mut Launch) {
    let swiglu_bwd_params { n, .. } = launch.params();
    let (gate_up, dy) = (launch.before("gate_up"), launch.before("dy"));
    let activation = activation(launch);
    launch.is_gradient("dgate_up", &gate_up, |gate_up| dots(&gated(gate_up, n, activation), &dy, n as usize));
}
