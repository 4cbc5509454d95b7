use precast_kernels::Key;
use precast_kernels::abi::{swiglu_bwd_params, swiglu_fwd_params};

use super::calculus::{dot, gradient};
use super::launch::Launch;

/// `gate * sigmoid(gate) * up` of a row of gates and then ups.
pub fn gated(gate_up: &[f64]) -> Vec<f64> {
    let (gate, up) = gate_up.split_at(gate_up.len() / 2);
    gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
}

pub fn fwd(key: &Key) {
    let launch = Launch::new(key, swiglu_fwd_params { tokens: 5, n: 19, ..Default::default() });
    launch.is("y", &launch.before("gate_up").chunks(2 * 19).flat_map(gated).collect::<Vec<_>>());
}

pub fn bwd(key: &Key) {
    let launch = Launch::new(key, swiglu_bwd_params { tokens: 5, n: 19, ..Default::default() });
    let (gate_up, dy) = (launch.before("gate_up"), launch.before("dy"));
    let rows = gate_up.chunks(2 * 19).zip(dy.chunks(19));
    launch.is("dgate_up", &rows.flat_map(|(row, dy)| gradient(row, |row| dot(&gated(row), dy))).collect::<Vec<_>>());
}
