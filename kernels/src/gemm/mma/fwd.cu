// Linear layer forward on tensor cores: y = x w^T, with bias and residual added before the one rounding in the epilogue.
// Both operands are K-major: A(i, r) = x[i, r], B(r, j) = w[j, r]. n and k are multiples of 8, addresses of 16 bytes; m is any.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/mma/epilogue.cuh"

KERNEL(gemm_fwd_params) {
    Accumulators acc;
    gemm<false, false>({(const void*)p.x, p.k, p.m, p.k}, {(const void*)p.w, p.k, p.n, p.k}, {blockIdx.x, 0, 1}, acc);
    store<KEY_BIAS, KEY_RESIDUAL>(acc, p.y, p.bias, p.residual, p.m, p.n);
}
