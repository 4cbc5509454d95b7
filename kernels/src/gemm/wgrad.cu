// Gradient of a linear layer's weights: dw = dy^T x, summed over the tokens, in f32.
// A(i, r) = dy[r, i] and B(r, j) = x[r, j]: both run across r in memory.
// The first micro-batch of a step overwrites dw, so nothing has to clear it.
#include "gemm/tile.cuh"

KERNEL(gemm_wgrad_params) {
    const Panel a = {(const KEY_X*)p.dy, p.n, p.n, p.m};
    const Panel b = {(const KEY_X*)p.x, p.k, p.k, p.m};
    float* dw = (float*)p.dw;
    const bool add = p.accumulate || ((const micro_scalars*)p.micro)->accumulate;
    multiply<true, true>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        const uint64_t at = uint64_t(i) * p.k + j;
        dw[at] = add ? dw[at] + sum : sum;
    });
}
