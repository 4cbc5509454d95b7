// Gate and up projection, gated at the store: y = silu(x wg^T) (x wu^T), nothing else leaves the registers.
// w holds the rows of wg and then those of wu: a tile is columns of the one and the same columns of the other.
// m, n and k are arguments: one module serves every layer.
#include "gemm/gated.cuh"
#include "gemm/tile.cuh"

KERNEL(gemm_swiglu_params) {
    const Panel a = {(const KEY_X*)p.x, p.k, p.m, p.k};
    const Panel b = {(const KEY_X*)p.w, p.k, p.n, p.k};
    KEY_X* y = (KEY_X*)p.y;
    multiply_pairs(a, b, [&](uint32_t i, uint32_t j, float gate, float up) {
#if KEY_BIAS
        gate += to_float(((const KEY_X*)p.bias)[j]);
        up += to_float(((const KEY_X*)p.bias)[p.n + j]);
#endif
        y[uint64_t(i) * p.n + j] = from_float<KEY_X>(gated<KEY_X>(gate, up));
    });
}
