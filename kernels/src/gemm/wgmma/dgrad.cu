// Gradient of a linear layer's inputs on sm_90a: dx = dy w, summed over the out features. dy is K-major, w
// MN-major: wgmma reads it transposed. Tiles beyond whole waves are split along K (stream-K). TMA descriptors: dy,
// w.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/wgmma/epilogue.cuh"

CLUSTER_KERNEL(gemm_dgrad_params, CLUSTER) {
    Bf16Epilogue<false, false> dx = {nullptr, nullptr, (bf16*)p.dx, p.m, p.k};
    gemm<false, true, TileScheduler<true, TILE_N>>(p.maps, {p.m, p.k, p.n}, dx);
}
