// Gate and up projection on sm_90a, gated in the epilogue: y = silu(x wg^T) (x wu^T), nothing else leaves the
// registers. w holds the rows of wg and then those of wu: a tile is columns of the one and the same columns of the
// other, so that one thread holds both accumulators. The CTAs of a cluster share the tile of w by multicast. TMA
// descriptors: x, w.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/wgmma/forward.cuh"
#include "gemm/wgmma/gated.cuh"

CLUSTER_KERNEL(gemm_swiglu_params, CLUSTER) {
    GatedEpilogue<Bf16Epilogue<KEY_BIAS, false, true>> y = {{(const bf16*)p.bias, nullptr, (bf16*)p.y, p.m, p.n}};
    forward(p, p.k, y);
}
