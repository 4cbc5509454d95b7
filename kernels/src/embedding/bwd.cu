// Embedding scatter-add without atomics: dtable[id] += sum of dy over the tokens with that id.
// One block a sorted token; the block at the head of a run of equal ids owns that row of the table and
// adds the run's rows in order, so the sum is the same bits every time. Other blocks leave at once.
#include "device.cuh"
#include "embedding.h"

KERNEL(embedding_bwd_params) {
    const uint32_t* ids = (const uint32_t*)p.sorted_ids;
    const uint32_t* positions = (const uint32_t*)p.sorted_positions;
    const KEY_X* dy = (const KEY_X*)p.dy;
    const uint32_t first = blockIdx.x;
    const uint32_t id = ids[first];
    if (first > 0 && ids[first - 1] == id) return;
    uint32_t end = first + 1;
    while (end < p.tokens && ids[end] == id) end++;
    float* dtable = (float*)p.dtable + uint64_t(id) * KEY_H;
    for (uint32_t i = threadIdx.x; i < KEY_H; i += VARIANT_THREADS) {
        float sum = 0.0f;
        for (uint32_t t = first; t < end; t++) sum += to_float(dy[uint64_t(positions[t]) * KEY_H + i]);
        dtable[i] += sum;
    }
}
