use precast_kernels::abi::{swiglu_bwd_params, swiglu_fwd_params};

use super::calculus::dots;
use super::launch::Launch;

/// `gate * sigmoid(gate) * up` of a row of gates and then ups.
pub fn gated(gate_up: &[f64]) -> Vec<f64> {
    let (gate, up) = gate_up.split_at(gate_up.len() / 2);
    gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
}

fn forward(gate_up: &[f64], n: u32) -> Vec<f64> {
    gate_up.chunks(2 * n as usize).flat_map(gated).collect()
}

pub fn fwd(launch: &mut Launch) {
    let swiglu_fwd_params { n, .. } = launch.params();
    launch.is("y", &forward(&launch.before("gate_up"), n));
}

pub fn bwd(launch: &mut Launch) {
    let swiglu_bwd_params { n, .. } = launch.params();
    let (gate_up, dy) = (launch.before("gate_up"), launch.before("dy"));
    launch.is_gradient("dgate_up", &gate_up, |gate_up| dots(&forward(gate_up, n), &dy, n as usize));
}
