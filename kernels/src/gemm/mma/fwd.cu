// Linear layer forward on tensor cores: y = x w^T, with bias and residual added before the one rounding at the store.
// Both inputs run along k in memory, so A(i, r) = x[i, r] and B(r, j) = w[j, r] are straight.
// n and k are multiples of 8, addresses of 16 bytes; m is any. See multiply.cuh.
#include "gemm/mma/store.cuh"

KERNEL(gemm_fwd_params) {
    Sums sums;
    multiply<false, false>({(const void*)p.x, p.k, p.m, p.k}, {(const void*)p.w, p.k, p.n, p.k}, {blockIdx.x, 0, 1}, sums);
    store<KEY_BIAS, KEY_RESIDUAL>(sums, p.y, p.bias, p.residual, p.m, p.n);
}
