// Linear layer forward: y = x w^T, with bias and residual added before the one rounding at the store.
// Both inputs run along k in memory, so A(i, r) = x[i, r] and B(r, j) = w[j, r].
// m, n and k are arguments: one module serves every layer.
#include "gemm/tile.cuh"

KERNEL(gemm_fwd_params) {
    const Panel a = {(const KEY_X*)p.x, p.k, p.m, p.k};
    const Panel b = {(const KEY_X*)p.w, p.k, p.n, p.k};
    KEY_X* y = (KEY_X*)p.y;
    multiply<false, false>(a, b, [&](uint32_t i, uint32_t j, float sum) {
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
