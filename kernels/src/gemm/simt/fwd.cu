// Linear layer forward on CUDA cores: y = x w^T, with bias and residual added before the one rounding in the epilogue.
// Both operands are K-major: A(i, r) = x[i, r], B(r, j) = w[j, r].
// Bound: FP32 arithmetic. Source: see mainloop.cuh.
#ifdef KEY_EXPERTS
#include "gemm/experts.cuh"
#endif
#include "gemm/simt/mainloop.cuh"

KERNEL(gemm_fwd_params) {
    gemm_fwd_params own = p;
#ifdef KEY_EXPERTS
    if (!narrow(own, ExpertTiles{(const uint32_t*)p.tiles}[blockIdx.z], 0, EXPERT_TILE, p.n)) return;
#endif
    const Matrix a = {(const KEY_X*)own.x, p.k, own.m, p.k};
    const Matrix b = {(const KEY_X*)own.w, p.k, p.n, p.k};
    KEY_X* y = (KEY_X*)own.y;
    gemm<false, false>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        const uint64_t at = uint64_t(i) * p.n + j;
#if KEY_BIAS
        sum += to_float(((const KEY_X*)p.bias)[j]);
#endif
#if KEY_RESIDUAL
        sum += to_float(((const KEY_X*)p.residual)[at]);
#endif
        y[at] = from_float<KEY_X>(sum);
    });
}
