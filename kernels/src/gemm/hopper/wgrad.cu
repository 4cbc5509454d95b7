// Gradient of a linear layer's weights on sm_90a: dw = dy^T x, summed over the tokens, in f32.
// Both inputs run across the depth. There are few tiles and many tokens: clusters divide by depth what is no whole wave of
// tiles and add up in the order of their blocks, or tiles are of 64 rows, and enough. Tensor cores round sums towards zero,
// as in cuBLAS: the distance from exact sums is 1.1e-9 of the norm a token that one block sums. Maps: dy, x.
#include "gemm/hopper/multicast.cuh"
#include "gemm/hopper/store.cuh"

CLUSTER_KERNEL(gemm_wgrad_params, CLUSTER) {
    const bool accumulate = p.accumulate || ((const micro_scalars*)p.micro)->accumulate;
    Summed dw = {(float*)p.dw, p.n, p.k, 0, accumulate};
    if constexpr (TILE_ROWS == 64) product_multicast(p.maps, p.n, p.m, dw);
    else product<true, true, true>(p.maps, p.n, p.k, p.m, dw);
}
