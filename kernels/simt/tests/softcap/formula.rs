//! Functions that keep numbers below a bound.

use precast_kernels::Key;
use precast_kernels::abi::softcap_fwd_params;

use super::launch::Launch;

/// Every sample: a formula that runs others than these misses what the reference does with theirs.
pub fn fwd(key: &Key) {
    for sample in key.kernel().samples() {
        let params: softcap_fwd_params = bytemuck::pod_read_unaligned(&sample);
        let (launch, cap) = (Launch::new(key, params), f64::from(params.cap));
        let y = launch.before("x").into_iter().map(|x| cap * (x / cap).tanh());
        launch.is("y", &y.collect::<Vec<_>>());
    }
}
