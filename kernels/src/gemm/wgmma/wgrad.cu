// Gradient of a linear layer's weights on sm_90a: dw = dy^T x, summed over the tokens, in f32. Both operands are
// MN-major. There are few tiles and many tokens: tiles beyond whole waves are split along K in clusters that reduce in
// the order of their CTAs (stream-K), or there are enough tiles of 64 rows. Tensor cores round accumulators towards
// zero, as under cuBLAS: the distance from exact sums is 1.1e-9 of the norm per token that one CTA sums. TMA
// descriptors: dy, x.
// Bound: tensor cores. Sources: see mainloop.cuh and multicast.cuh.
#include "gemm/wgmma/epilogue.cuh"
#include "gemm/wgmma/multicast.cuh"

CLUSTER_KERNEL(gemm_wgrad_params, CLUSTER) {
    const bool accumulate = p.accumulate || ((const micro_scalars*)p.micro)->accumulate;
    F32Epilogue dw = {(float*)p.dw, p.n, p.k, 0, accumulate};
    if constexpr (TILE_M == 64) gemm_multicast(p.maps, p.n, p.m, dw);
    else gemm<true, true, TileScheduler<true, TILE_N>>(p.maps, {p.n, p.k, p.m}, dw);
}
