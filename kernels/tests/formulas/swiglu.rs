use precast_kernels::abi::{swiglu_bwd_params, swiglu_fwd_params};

use super::calculus::dots;
use super::launch::Launch;

type Activation = fn(f64) -> f64;

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// GELU by tanh (Hendrycks and Gimpel, 2016).
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

/// Returns the activation of a launch's gates.
pub fn activation(launch: &Launch) -> Activation {
    if launch.goes("gelu", launch.optional("gate") == Some("gelu")) { gelu } else { silu }
}

/// `activation(gate) * up` of rows of n gates and then n ups.
pub fn gated(gate_up: &[f64], n: u32, activation: Activation) -> Vec<f64> {
    let n = n as usize;
    let row = |row: &[f64]| (0..n).map(|i| activation(row[i]) * row[n + i]).collect::<Vec<f64>>();
    gate_up.chunks(2 * n).flat_map(row).collect()
}

pub fn fwd(launch: &mut Launch) {
    let swiglu_fwd_params { n, .. } = launch.params();
    launch.is("y", &gated(&launch.before("gate_up"), n, activation(launch)));
}

pub fn bwd(launch: &mut Launch) {
    let swiglu_bwd_params { n, .. } = launch.params();
    let (gate_up, dy, activation) = (launch.before("gate_up"), launch.before("dy"), activation(launch));
    launch.is_gradient("dgate_up", &gate_up, |gate_up| dots(&gated(gate_up, n, activation), &dy, n as usize));
}
