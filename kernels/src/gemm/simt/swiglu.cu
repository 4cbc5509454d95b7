// Gate and up projection on CUDA cores, gated in the epilogue: y = silu(x wg^T) (x wu^T), nothing else leaves the
// registers. w holds the rows of wg and then those of wu: a tile is columns of the one and the same columns of the
// other.
// Bound: FP32 arithmetic. Source: see mainloop.cuh.
#include "gemm/swiglu.cuh"
#ifdef KEY_EXPERTS
#include "gemm/experts.cuh"
#endif
#include "gemm/simt/mainloop.cuh"

KERNEL(gemm_swiglu_params) {
    gemm_swiglu_params own = p;
#ifdef KEY_EXPERTS
    if (!narrow(own, ExpertTiles{(const uint32_t*)p.tiles}[blockIdx.z], 0, EXPERT_TILE, 2 * p.n)) return;
#endif
    const Matrix a = {(const KEY_X*)own.x, p.k, own.m, p.k};
    const Matrix b = {(const KEY_X*)own.w, p.k, p.n, p.k};
    KEY_X* y = (KEY_X*)own.y;
    gemm_paired(a, b, [&](uint32_t i, uint32_t j, float gate, float up) {
#if KEY_BIAS
        gate += to_float(((const KEY_X*)p.bias)[j]);
        up += to_float(((const KEY_X*)p.bias)[p.n + j]);
#endif
        y[uint64_t(i) * p.n + j] = from_float<KEY_X>(swiglu<KEY_X>(gate, up));
    });
}
