// Linear layer forward on tensor cores: y = x w^T, with bias and residual added before the one rounding in the
// epilogue. Both operands are K-major: A(i, r) = x[i, r], B(r, j) = w[j, r]. n and k are multiples of 8, addresses of
// 16 bytes; m is any.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/mma/epilogue.cuh"
#include "gemm/mma/work.cuh"

KERNEL(gemm_fwd_params) {
    TAKE_TILE(gemm_fwd_params, TILE_N, p.n);
    Accumulators acc;
    gemm<false, false>({(const void*)own.x, p.k, own.m, p.k}, {(const void*)own.w, p.k, p.n, p.k}, {tile, 0, 1}, acc);
    store<KEY_BIAS, KEY_RESIDUAL>(acc, own.y, p.bias, p.residual, own.m, p.n);
}
