// Embedding gather: y[t] = table[ids[t]].
// One block a token; a row is copied in vectors of four, as bits, so no rounding happens.
// Memory bound: it reads and writes tokens * h elements.
#include "device.cuh"
#include "embedding.h"

KERNEL(embedding_fwd_params) {
    const uint32_t id = ((const uint32_t*)p.ids)[blockIdx.x];
    const KEY_X* row = (const KEY_X*)p.table + uint64_t(id) * KEY_H;
    KEY_X* y = (KEY_X*)p.y + uint64_t(blockIdx.x) * KEY_H;
    constexpr uint32_t vectors = KEY_H % 4 == 0 ? KEY_H / 4 : 0;
    for (uint32_t i = threadIdx.x; i < vectors; i += VARIANT_THREADS) store4(y + 4 * i, load4(row + 4 * i));
    for (uint32_t i = 4 * vectors + threadIdx.x; i < KEY_H; i += VARIANT_THREADS) y[i] = row[i];
}
