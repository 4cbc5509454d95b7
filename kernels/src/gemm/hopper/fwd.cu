// Linear layer forward on sm_90a: y = x w^T, with bias and residual added before the one rounding at the store.
// Both inputs run along k, and so along the depth. What is added is fetched while the last products are under way.
// Maps: x, w.
#include "gemm/hopper/store.cuh"

CLUSTER_KERNEL(gemm_fwd_params, CLUSTER) {
    Rounded<KEY_BIAS, KEY_RESIDUAL> y = {(const bf16*)p.bias, (const bf16*)p.residual, (bf16*)p.y, p.m, p.n};
    product<false, false, false>(p.maps, p.m, p.n, p.k, y);
}
