// Gradient of a linear layer's inputs: dx = dy w, summed over the out features.
// A(i, r) = dy[i, r] runs along r in memory; B(r, j) = w[r, j] runs along j.
// m, n and k are arguments: one module serves every layer.
#include "gemm/tile.cuh"

KERNEL(gemm_dgrad_params) {
    const Panel a = {(const KEY_X*)p.dy, p.n, p.m, p.n};
    const Panel b = {(const KEY_X*)p.w, p.k, p.k, p.n};
    KEY_X* dx = (KEY_X*)p.dx;
    multiply<false, true>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        dx[uint64_t(i) * p.k + j] = from_float<KEY_X>(sum);
    });
}
