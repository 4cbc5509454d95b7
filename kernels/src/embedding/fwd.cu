// Embedding gather: y[t] = table[ids[t]].
// A warp a token; a row is copied in vectors of 16 bytes, as bits, so no rounding happens.
// Memory bound: it reads and writes tokens * h elements.
#include "embedding.h"
#include "vector.cuh"

KERNEL(embedding_fwd_params) {
    constexpr uint32_t width = KEY_H % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1;
    typedef vector<KEY_X, width> Vector;
    const uint32_t token = blockIdx.x * (VARIANT_THREADS / WARP) + threadIdx.x / WARP;
    if (token >= p.tokens) return;
    const uint32_t id = ((const uint32_t*)p.ids)[token];
    const Vector* row = (const Vector*)((const KEY_X*)p.table + uint64_t(id) * KEY_H);
    Vector* y = (Vector*)((KEY_X*)p.y + uint64_t(token) * KEY_H);
#pragma unroll 8
    for (uint32_t i = threadIdx.x % WARP; i < KEY_H / width; i += WARP) y[i] = row[i];
}
