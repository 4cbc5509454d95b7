// Embedding gather: y[t] = table[ids[t]]. A warp per token; a row is moved in 16-byte vectors: a dense one as bits,
// so no rounding happens, and one in a block format dequantized on the way, so that the table stays in its stored
// format.
// Bound: memory. Reads and writes tokens * h elements. Source: the definition of a lookup table.
#include "embedding.h"
#include "blocks.cuh"

KERNEL(embedding_fwd_params) {
    constexpr uint32_t width = KEY_H % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1;
    typedef vector<KEY_X, width> Vector;
    const uint32_t token = blockIdx.x * (VARIANT_THREADS / WARP) + threadIdx.x / WARP;
    if (token >= p.tokens) return;
    const uint32_t id = ((const uint32_t*)p.ids)[token];
    const KEY_W* row = (const KEY_W*)p.table + uint64_t(id) * (KEY_H / elems_of<KEY_W>::VALUE);
    Vector* y = (Vector*)((KEY_X*)p.y + uint64_t(token) * KEY_H);
#pragma unroll 8
    for (uint32_t i = threadIdx.x % WARP; i < KEY_H / width; i += WARP) y[i] = load_weights<KEY_X, width>(row, i);
}
