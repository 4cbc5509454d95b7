// Adds what a token's choices computed, each times its weight, in order, and then the residual; rounds once. A warp
// takes a token. Bound: memory. Source: Gale et al., "MegaBlocks", 2023.
#include "moe.h"
#include "vector.cuh"

template <uint32_t n> __device__ __forceinline__ void add_rows(const moe_combine_params& p, uint32_t token) {
    const uint32_t count = p.h / n;
    const KEY_X* rows[KEY_CHOICES];
    float weights[KEY_CHOICES];
#pragma unroll
    for (uint32_t choice = 0; choice < KEY_CHOICES; choice++) {
        const uint64_t at = uint64_t(token) * KEY_CHOICES + choice;
        rows[choice] = (const KEY_X*)p.y + uint64_t(((const uint32_t*)p.places)[at]) * p.h;
        weights[choice] = ((const float*)p.weights)[at];
    }
    const KEY_X* residual = (const KEY_X*)p.residual + uint64_t(token) * p.h;
    KEY_X* out = (KEY_X*)p.out + uint64_t(token) * p.h;
    for (uint32_t i = threadIdx.x % WARP; i < count; i += WARP) {
        vector<KEY_X, n> values[KEY_CHOICES]; // in flight together
#pragma unroll
        for (uint32_t choice = 0; choice < KEY_CHOICES; choice++) values[choice] = load_vector<n>(rows[choice], i);
        const vector<KEY_X, n> added = load_vector<n>(residual, i);
        float sums[n] = {};
#pragma unroll
        for (uint32_t choice = 0; choice < KEY_CHOICES; choice++)
#pragma unroll
            for (uint32_t e = 0; e < n; e++) sums[e] = fma_rn(weights[choice], values[choice][e], sums[e]);
#pragma unroll
        for (uint32_t e = 0; e < n; e++) sums[e] += added[e];
        store_vector(out, i, sums);
    }
}

KERNEL(moe_combine_params) {
    const uint32_t token = blockIdx.x * (VARIANT_THREADS / WARP) + threadIdx.x / WARP;
    if (token >= p.tokens) return;
    if (p.h % WIDTH_OF(KEY_X) == 0) add_rows<WIDTH_OF(KEY_X)>(p, token);
    else add_rows<1>(p, token);
}
