//! Functions that keep numbers below a bound.

use precast_kernels::abi::softcap_fwd_params;

use super::launch::Launch;

pub fn fwd(launch: &mut Launch) {
    let softcap_fwd_params { cap, .. } = launch.params();
    let y = launch.before("x").into_iter().map(|x| f64::from(cap) * (x / f64::from(cap)).tanh());
    launch.is("y", &y.collect::<Vec<_>>());
}
