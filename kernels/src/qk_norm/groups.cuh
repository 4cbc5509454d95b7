// Groups of heads: a few lanes take HEADS neighboring heads of a token, so that cosines and sines are loaded once for
// all of them.
#pragma once
#include "qk_norm/head.cuh"

enum : uint32_t { HEADS = VARIANT_HEADS };

// Calls `take` with the token and the first head of each of this thread's groups, of `heads` per token, and true if
// they exist for its column: all threads of a CTA loop equally often.
template <typename Take>
__device__ __forceinline__ void for_each_group(uint32_t tokens, uint32_t heads, uint32_t column, Take take) {
    const uint32_t per_token = (heads + HEADS - 1) / HEADS;
    const uint64_t items = uint64_t(tokens) * per_token;
    const uint64_t stride = uint64_t(gridDim.x) * GROUPS;
    for (uint64_t start = uint64_t(blockIdx.x) * GROUPS; start < items; start += stride) {
        const uint64_t item = start + threadIdx.x / LANES;
        const uint32_t token = item <= 0xffffffffu ? uint32_t(item) / per_token : uint32_t(item / per_token);
        take(token, uint32_t(item - uint64_t(token) * per_token) * HEADS, item < items && column < COLUMNS);
    }
}
