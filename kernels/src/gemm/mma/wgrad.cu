// Gradient of a linear layer's weights on tensor cores: dw (+)= dy^T x, summed over the tokens, in f32.
// A(i, r) = dy[r, i] and B(r, j) = x[r, j] run across r in memory: both are transposed.
// n and k are multiples of 8, addresses of 16 bytes; m is any. See multiply.cuh.
#include "gemm/mma/store.cuh"

KERNEL(gemm_wgrad_params) {
    Sums sums;
    const bool add = p.accumulate || ((const micro_scalars*)p.micro)->accumulate;
    multiply<true, true>({(const void*)p.dy, p.n, p.n, p.m}, {(const void*)p.x, p.k, p.k, p.m}, sums);
    store(sums, p.dw, add, p.n, p.k);
}
