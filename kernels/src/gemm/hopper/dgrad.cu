// Gradient of a linear layer's inputs on sm_90a: dx = dy w, summed over the out features.
// dy runs along the depth, w across it: the tensor cores read it transposed.
// Maps: dy, w.
#include "gemm/hopper/store.cuh"

CLUSTER_KERNEL(gemm_dgrad_params, CLUSTER) {
    Rounded<false, false> dx = {nullptr, nullptr, (bf16*)p.dx, p.m, p.k};
    product<false, true, true>(p.maps, p.m, p.k, p.n, dx);
}
