// Gradient of a linear layer's inputs on CUDA cores: dx = dy w, summed over the out features.
// A(i, r) = dy[i, r] is K-major, B(r, j) = w[r, j] MN-major.
// Bound: FP32 arithmetic. Source: see mainloop.cuh.
#include "gemm/simt/mainloop.cuh"

KERNEL(gemm_dgrad_params) {
    const Matrix a = {(const KEY_X*)p.dy, p.n, p.m, p.n};
    const Matrix b = {(const KEY_X*)p.w, p.k, p.k, p.n};
    KEY_X* dx = (KEY_X*)p.dx;
    gemm<false, true>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        dx[uint64_t(i) * p.k + j] = from_float<KEY_X>(sum);
    });
}
