// Gradient of a linear layer's inputs on tensor cores: dx = dy w, summed over the out features.
// A(i, r) = dy[i, r] runs along r in memory; B(r, j) = w[r, j] runs along j: transposed.
// n and k are multiples of 8, addresses of 16 bytes; m is any. See multiply.cuh.
#include "gemm/mma/store.cuh"

KERNEL(gemm_dgrad_params) {
    Sums sums;
    multiply<false, true>({(const void*)p.dy, p.n, p.m, p.n}, {(const void*)p.w, p.k, p.k, p.n}, sums);
    store<false, false>(sums, p.dx, 0, 0, p.m, p.k);
}
