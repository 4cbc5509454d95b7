// Gradient of a linear layer's weights on CUDA cores: dw = dy^T x, summed over the tokens, in f32. A(i, r) =
// dy[r, i] and B(r, j) = x[r, j] are MN-major. The first micro-batch of a step overwrites dw, so it needs no
// clearing.
// Bound: FP32 arithmetic. Source: see mainloop.cuh.
#include "gemm/simt/mainloop.cuh"

KERNEL(gemm_wgrad_params) {
    const Matrix a = {(const KEY_X*)p.dy, p.n, p.n, p.m};
    const Matrix b = {(const KEY_X*)p.x, p.k, p.k, p.m};
    float* dw = (float*)p.dw;
    const bool add = p.accumulate || ((const micro_scalars*)p.micro)->accumulate;
    gemm<true, true>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        const uint64_t at = uint64_t(i) * p.k + j;
        dw[at] = add ? dw[at] + sum : sum;
    });
}
